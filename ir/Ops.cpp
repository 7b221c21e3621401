#include "ir/Ops.h"

#include <array>

namespace sluice {
namespace {

/// The operations by their texts, each in a slot of its own: found at compile
/// time, since a schedule has millions of names to read.
class OpTexts {
public:
  constexpr OpTexts() {
    while (!fill() && factor < kSlots)
      ++factor;
  }

  constexpr std::optional<Op> find(std::string_view text) const {
    if (text.empty())
      return std::nullopt;
    uint8_t op = slots[slotOf(text)];
    return op != kFree && kOps[op].text == text
               ? std::optional(static_cast<Op>(op))
               : std::nullopt;
  }

private:
  static constexpr size_t kSlots = 128;
  static constexpr uint8_t kFree = kOpCount;

  constexpr size_t slotOf(std::string_view text) const {
    return (static_cast<unsigned char>(text.front()) * factor +
            static_cast<unsigned char>(text.back()) + text.size()) %
           kSlots;
  }
  /// Whether no two meet.
  constexpr bool fill() {
    slots.fill(kFree);
    for (unsigned op = 0; op < kOpCount; ++op) {
      uint8_t &slot = slots[slotOf(kOps[op].text)];
      if (slot != kFree)
        return false;
      slot = static_cast<uint8_t>(op);
    }
    return true;
  }

  std::array<uint8_t, kSlots> slots{};
  size_t factor = 1;
};

constexpr OpTexts kOpTexts;
static_assert(
    [] {
      for (unsigned op = 0; op < kOpCount; ++op)
        if (kOpTexts.find(kOps[op].text) != static_cast<Op>(op))
          return false;
      return true;
    }(),
    "two texts of Ops.def agree in length, first and last letter, or meet with "
    "every factor: take more of their letters into slotOf()");

} // namespace

std::optional<Op> opFromText(std::string_view text) {
  return kOpTexts.find(text);
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
  uint64_t value = 0;
  size_t digits = 0;
  for (; digits < text.size() && text[digits] >= '0' && text[digits] <= '9' &&
         value <= kMaxNumber;
       ++digits)
    value = value * 10 + static_cast<uint64_t>(text[digits] - '0');
  if (digits == 0 || value > kMaxNumber || (digits > 1 && text[0] == '0'))
    return std::nullopt;
  text.remove_prefix(digits);
  return static_cast<Id>(value);
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
