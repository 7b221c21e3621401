#include "compiler/spec/Keys.h"

#include "llvm/ADT/StringRef.h"
#include <algorithm>
#include <charconv>
#include <cmath>
#include <tuple>

namespace sluice {

//===----------------------------------------------------------------------===//
// Reader
//===----------------------------------------------------------------------===//

Diagnostic &Reader::error(SourceLocation where, std::string message) {
  if (++faults <= kMaxFaults)
    return diagnostics.error(where, std::move(message));
  if (faults == kMaxFaults + 1)
    diagnostics.error(where, "more than " + std::to_string(kMaxFaults) +
                                 " faults; the rest is not shown");
  dropped = {};
  return dropped;
}

Diagnostic &Reader::warning(SourceLocation where, std::string message) {
  return diagnostics.warning(where, std::move(message));
}

void Reader::noteTime(TimeUnit unit, SourceLocation where, std::string what) {
  std::optional<TimePlace> &first = unit == TimeUnit::Unit ? units : seconds;
  if (!first)
    first = TimePlace{where, std::move(what)};
}

TimeUnit Reader::finishTimes() {
  if (units && seconds) {
    auto order = [](const TimePlace &time) {
      return std::tie(time.where.file, time.where.line, time.where.column);
    };
    bool unitsFirst = order(*units) < order(*seconds);
    const TimePlace &earlier = unitsFirst ? *units : *seconds;
    const TimePlace &later = unitsFirst ? *seconds : *units;
    error(later.where, later.what + ", but " + earlier.what +
                           "; a spec must not mix the two")
        .note("the other time is here", earlier.where);
  }
  return seconds ? TimeUnit::Seconds : TimeUnit::Unit;
}

//===----------------------------------------------------------------------===//
// Field: places and messages
//===----------------------------------------------------------------------===//

/// `text` as a message shows it: not over 60 bytes, cut between characters.
static std::string shortened(std::string_view text) {
  constexpr size_t kLimit = 60;
  if (text.size() <= kLimit)
    return std::string(text);
  size_t end = kLimit;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80)
    --end;
  return std::string(text.substr(0, end)) + "...";
}

Field Field::child(const YamlEntry &entry) const {
  bool byKey =
      entry.value.kind == YamlKind::Null || entry.value.kind == YamlKind::Map;
  std::string prefix = path.empty() ? "" : path + ".";
  return {reader, entry.value, byKey ? entry.where : entry.value.where,
          prefix + shortened(entry.key)};
}

Field Field::item(size_t index) const {
  const YamlNode &value = node.items[index];
  bool byList = value.kind == YamlKind::Null && value.where.file == where.file;
  return {reader, value, byList ? where : value.where,
          path + "[" + std::to_string(index) + "]"};
}

std::string Field::shown() const {
  switch (node.kind) {
  case YamlKind::Null:
    return "empty";
  case YamlKind::Scalar:
    return node.text.empty() ? "''" : shortened(node.text);
  case YamlKind::List:
    return "a list";
  case YamlKind::Map:
    return "a map";
  }
  return {};
}

Diagnostic &Field::mismatch(const std::string &must) const {
  return reader.error(where, name() + " is " + shown() + ", must be " + must);
}

/// The name in `known` that `key` was most likely meant to be; empty if none is
/// near.
static std::string_view nearest(std::string_view key,
                                const std::vector<std::string_view> &known) {
  constexpr size_t kLongestKey = 40;
  if (key.size() > kLongestKey)
    return {};
  std::string_view best;
  unsigned bestDistance = std::max<unsigned>(2, key.size() / 3) + 1;
  for (std::string_view name : known) {
    if (key.size() >= 3 && name.substr(0, key.size()) == key)
      return name;
    unsigned distance = llvm::StringRef(key.data(), key.size())
                            .edit_distance_insensitive(
                                llvm::StringRef(name.data(), name.size()));
    if (distance < bestDistance && distance < name.size()) {
      best = name;
      bestDistance = distance;
    }
  }
  return best;
}

void Field::unknownKey(const YamlEntry &entry,
                       const std::vector<std::string_view> &known) const {
  std::string message = "unknown key " + child(entry).path;
  std::string_view guess = nearest(entry.key, known);
  if (!guess.empty())
    message += "; did you mean " + std::string(guess) + "?";
  Diagnostic &fault = reader.error(entry.where, message);
  if (!guess.empty() || !reader.listKeys(path))
    return;
  std::string list;
  for (std::string_view name : known)
    list += (list.empty() ? "" : ", ") + std::string(name);
  fault.note(name() + " has the keys " + list);
}

void Field::missingKey(std::string_view key, std::string_view only) const {
  std::string message = name() + " has no " + std::string(key);
  if (!only.empty())
    message += "; write " + std::string(key) + ": " + std::string(only);
  reader.error(where, message);
}

void Field::expectOnly(std::string_view only) const {
  if (node.kind == YamlKind::Scalar &&
      llvm::StringRef(node.text).equals_insensitive(
          llvm::StringRef(only.data(), only.size())))
    return;
  reader.error(where, name() + " is " + shown() + ", but only " +
                          std::string(only) + " is supported yet");
}

bool Field::expectMap() const {
  bool fits = node.kind == YamlKind::Map || node.kind == YamlKind::Null;
  if (!fits)
    mismatch("a map");
  return fits;
}

bool Field::expectList() const {
  if (node.kind == YamlKind::List)
    return true;
  mismatch("a list");
  return false;
}

//===----------------------------------------------------------------------===//
// Field: values
//===----------------------------------------------------------------------===//

std::optional<std::string_view> Field::scalar(const std::string &must) const {
  if (node.kind == YamlKind::Scalar)
    return node.text;
  mismatch(must);
  return std::nullopt;
}

static bool isDigit(char c) { return c >= '0' && c <= '9'; }

/// Whether a number, with a unit or not, is 0 as it is written.
static bool isZero(std::string_view text) {
  llvm::StringRef number(text.data(), text.size());
  return number.take_while([](char c) { return c == '.' || isDigit(c); })
             .find_first_of("123456789") == llvm::StringRef::npos;
}

/// A scalar that is to be read as a number: no leading zero, which is octal to
/// some readers of YAML and decimal to others.
std::optional<std::string_view> Field::numeral(const std::string &must) const {
  std::optional<std::string_view> text = scalar(must);
  if (!text)
    return text;
  size_t sign = !text->empty() && ((*text)[0] == '-' || (*text)[0] == '+');
  if (text->size() > sign + 1 && (*text)[sign] == '0' &&
      isDigit((*text)[sign + 1])) {
    reader.error(where, name() + " is " + shown() +
                            ", but a leading zero may mean octal or decimal; "
                            "write the number without it");
    return std::nullopt;
  }
  return text;
}

std::optional<uint64_t> Field::count(uint64_t low, uint64_t high) const {
  std::string range =
      "from " + std::to_string(low) + " to " + std::to_string(high);
  std::optional<std::string_view> text = numeral("a whole number " + range);
  if (!text)
    return std::nullopt;
  std::string_view digits = text->substr(!text->empty() && (*text)[0] == '-');
  bool whole =
      !digits.empty() && std::all_of(digits.begin(), digits.end(), isDigit);
  uint64_t value = 0;
  auto result =
      std::from_chars(text->data(), text->data() + text->size(), value);
  bool inRange = whole && digits.size() == text->size() &&
                 result.ec == std::errc() && value >= low && value <= high;
  if (inRange)
    return value;
  mismatch(whole ? range : "a whole number " + range);
  return std::nullopt;
}

std::optional<std::vector<uint32_t>> Field::counts(uint64_t low,
                                                   uint64_t high) const {
  std::vector<uint32_t> values;
  bool ok = expectList();
  for (size_t i = 0; i < node.items.size(); ++i) {
    std::optional<uint64_t> value = item(i).count(low, high);
    ok = ok && value;
    values.push_back(static_cast<uint32_t>(value.value_or(0)));
  }
  return ok ? std::optional(std::move(values)) : std::nullopt;
}

std::optional<bool> Field::flag() const {
  std::optional<std::string_view> text = scalar("true or false");
  if (!text)
    return std::nullopt;
  if (*text == "true" || *text == "True" || *text == "TRUE")
    return true;
  if (*text == "false" || *text == "False" || *text == "FALSE")
    return false;
  mismatch("true or false");
  return std::nullopt;
}

std::optional<std::string> Field::text() const {
  std::optional<std::string_view> text = scalar("a text");
  if (text && !text->empty())
    return std::string(*text);
  if (text)
    mismatch("a text");
  return std::nullopt;
}

std::optional<double> Field::number(double high) const {
  std::string must =
      "a number over 0, up to " + std::to_string(static_cast<uint64_t>(high));
  std::optional<std::string_view> text = numeral(must);
  if (!text)
    return std::nullopt;
  double value = 0;
  const char *end = text->data() + text->size();
  auto result = std::from_chars(text->data(), end, value);
  if (result.ec == std::errc() && result.ptr == end && std::isfinite(value) &&
      value > 0 && value <= high)
    return value;
  mismatch(must);
  return std::nullopt;
}

std::optional<Ticks> Field::time() const {
  std::string must = "a time such as 3, 1.5ms or 20us, not negative and not "
                     "over " +
                     formatDecimal(kMaxTicks, TimeUnit::Unit) + " or " +
                     formatDecimal(kMaxTicks, TimeUnit::Seconds) + "s";
  std::optional<std::string_view> text = numeral(must);
  if (!text)
    return std::nullopt;
  std::optional<ParsedTime> time = parseTime(*text);
  if (!time) {
    mismatch(must);
    return std::nullopt;
  }
  if (time->ticks == 0 && time->unit && !isZero(*text)) {
    mismatch("0 or at least one tick of 1e-6 abstract units or 1e-12 s");
    return std::nullopt;
  }
  if (time->unit)
    reader.noteTime(*time->unit, where,
                    name() + " is " + shown() +
                        (*time->unit == TimeUnit::Unit ? ", in abstract units"
                                                       : ", in seconds"));
  return time->ticks;
}

std::optional<Bytes> Field::bytes() const {
  std::string must = "a size such as 512, 64MB or 80GiB, not negative and not "
                     "over " +
                     std::to_string(kMaxBytes) + " bytes";
  std::optional<std::string_view> text = numeral(must);
  if (!text)
    return std::nullopt;
  std::optional<Bytes> value = parseBytes(*text);
  if (!value)
    mismatch(must);
  return value;
}

std::optional<Bytes> Field::bandwidth() const {
  std::string must = "a bandwidth such as 50GB/s, or bytes per abstract unit "
                     "such as 100, of at least 1 and not over " +
                     std::to_string(kMaxBytes) + " bytes";
  std::optional<std::string_view> text = numeral(must);
  if (!text)
    return std::nullopt;
  bool perSecond = llvm::StringRef(text->data(), text->size()).ends_with("/s");
  std::optional<Bytes> value =
      perSecond ? parseBandwidth(*text) : parseBytes(*text);
  if (!value || *value == 0) {
    mismatch(must);
    return std::nullopt;
  }
  reader.noteTime(perSecond ? TimeUnit::Seconds : TimeUnit::Unit, where,
                  name() + " is " + shown() +
                      (perSecond ? ", per second" : ", per abstract unit"));
  return value;
}

std::optional<double> Field::flops() const {
  std::string must = "operations per second such as 312e12, 989T or 1.5P, "
                     "more than 0 and finite";
  std::optional<std::string_view> text = numeral(must);
  if (!text)
    return std::nullopt;
  std::optional<double> value = parseFlops(*text);
  if (value && *value > 0 && std::isfinite(*value)) {
    if (*value < 1e6)
      reader.warning(where, name() + " is " + shown() +
                                ", fewer operations per second than any device "
                                "does; the suffixes are k, M, G, T and P, as "
                                "in 989T");
    return value;
  }
  mismatch(must);
  return std::nullopt;
}

} // namespace sluice
