#include "ir/Ops.h"

#include <charconv>

namespace sluice {

std::optional<Op> opFromText(std::string_view text) {
  for (unsigned i = 0; i < kOpCount; ++i)
    if (kOps[i].text == text)
      return static_cast<Op>(i);
  return std::nullopt;
}

std::string opName(Op op, Id stage, Id microbatch) {
  std::string name = std::to_string(stage);
  name += info(op).text;
  if (info(op).perMicrobatch)
    name += std::to_string(microbatch);
  return name;
}

/// Takes a decimal number without sign or leading zero off the front.
static std::optional<Id> takeNumber(std::string_view &text) {
  Id value = 0;
  auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), value);
  size_t digits = end - text.data();
  if (error != std::errc() || value > kMaxNumber ||
      (digits > 1 && text[0] == '0'))
    return std::nullopt;
  text.remove_prefix(digits);
  return value;
}

std::optional<OpRef> parseOpName(std::string_view text) {
  std::optional<Id> stage = takeNumber(text);
  if (!stage)
    return std::nullopt;
  size_t letters = 0;
  while (letters < text.size() && (text[letters] < '0' || text[letters] > '9'))
    ++letters;
  std::optional<Op> op = opFromText(text.substr(0, letters));
  if (!op)
    return std::nullopt;
  text.remove_prefix(letters);
  if (!info(*op).perMicrobatch)
    return text.empty() ? std::optional(OpRef{*op, *stage, kNone})
                        : std::nullopt;
  std::optional<Id> microbatch = takeNumber(text);
  if (!microbatch || !text.empty())
    return std::nullopt;
  return OpRef{*op, *stage, *microbatch};
}

} // namespace sluice
