#include "ir/Units.h"

#include <charconv>
#include <cmath>
#include <cstdio>
#include <iterator>

namespace sluice {

std::string_view timeUnitName(TimeUnit unit) {
  return unit == TimeUnit::Unit ? "unit" : "s";
}

std::string formatDecimal(Ticks ticks, TimeUnit unit) {
  Ticks scale = ticksPer(unit);
  std::string text = ticks < 0 ? "-" : "";
  uint64_t magnitude = ticks < 0 ? 0 - static_cast<uint64_t>(ticks) : ticks;
  text += std::to_string(magnitude / scale);
  std::string fraction = std::to_string(magnitude % scale + scale).substr(1);
  fraction.erase(fraction.find_last_not_of('0') + 1);
  return fraction.empty() ? text : text + "." + fraction;
}

static std::string withDecimals(double value, const char *suffix) {
  char buffer[64];
  std::snprintf(buffer, sizeof buffer, "%.4f", value);
  std::string text = buffer;
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.')
    text.pop_back();
  return text + suffix;
}

std::string formatTime(Ticks ticks, TimeUnit unit) {
  double value = static_cast<double>(ticks);
  constexpr Ticks kSmall = 10'000; // below, four decimals lose digits
  if (unit == TimeUnit::Unit && ticks > -kSmall && ticks < kSmall)
    return formatDecimal(ticks, unit);
  if (unit == TimeUnit::Unit)
    return withDecimals(value / 1e6, "");
  if (ticks >= 1'000'000'000'000)
    return withDecimals(value / 1e12, " s");
  if (ticks >= 1'000'000'000)
    return withDecimals(value / 1e9, " ms");
  if (ticks >= 1'000'000)
    return withDecimals(value / 1e6, " us");
  return withDecimals(value / 1e3, " ns");
}

std::string formatBytes(Bytes bytes) {
  static constexpr const char *kNames[] = {"KiB", "MiB", "GiB",
                                           "TiB", "PiB", "EiB"};
  if (bytes < 1024)
    return std::to_string(bytes) + " B";
  double value = static_cast<double>(bytes) / 1024;
  unsigned power = 0;
  while (value >= 1024 && power + 1 < std::size(kNames)) {
    value /= 1024;
    ++power;
  }
  char buffer[64];
  std::snprintf(buffer, sizeof buffer, "%.2f %s", value, kNames[power]);
  return buffer;
}

namespace {
struct Suffix {
  std::string_view text;
  long double scale;
};
constexpr Suffix kTimes[] = {
    {"", 1e6L}, {"ns", 1e3L}, {"us", 1e6L}, {"ms", 1e9L}, {"s", 1e12L}};
constexpr Suffix kSizes[] = {{"", 1},
                             {"B", 1},
                             {"kB", 1e3L},
                             {"MB", 1e6L},
                             {"GB", 1e9L},
                             {"TB", 1e12L},
                             {"KiB", 1024.0L},
                             {"MiB", 1048576.0L},
                             {"GiB", 1073741824.0L},
                             {"TiB", 1099511627776.0L}};
constexpr Suffix kCounts[] = {{"", 1},     {"k", 1e3L},  {"M", 1e6L},
                              {"G", 1e9L}, {"T", 1e12L}, {"P", 1e15L}};
} // namespace

/// Splits "1.5ms" into its number, finite and not negative, and one of
/// `suffixes` (a space between them is allowed).
template <size_t N>
static const Suffix *parseScaled(std::string_view text,
                                 const Suffix (&suffixes)[N],
                                 long double &number) {
  if (text.empty() || text[0] == '-' || text[0] == '+')
    return nullptr;
  auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || !std::isfinite(number))
    return nullptr;
  std::string_view rest = text.substr(end - text.data());
  if (!rest.empty() && rest[0] == ' ')
    rest.remove_prefix(1);
  for (const Suffix &suffix : suffixes)
    if (suffix.text == rest)
      return &suffix;
  return nullptr;
}

std::optional<ParsedTime> parseTime(std::string_view text) {
  long double number = 0;
  const Suffix *suffix = parseScaled(text, kTimes, number);
  if (!suffix)
    return std::nullopt;
  long double ticks = roundl(number * suffix->scale);
  if (ticks > static_cast<long double>(kMaxTicks))
    return std::nullopt;
  std::optional<TimeUnit> unit =
      suffix->text.empty() ? TimeUnit::Unit : TimeUnit::Seconds;
  if (number == 0 && suffix->text.empty())
    unit.reset();
  return ParsedTime{static_cast<Ticks>(ticks), unit};
}

std::optional<Bytes> parseBytes(std::string_view text) {
  long double number = 0;
  const Suffix *suffix = parseScaled(text, kSizes, number);
  if (!suffix)
    return std::nullopt;
  long double bytes = roundl(number * suffix->scale);
  if (bytes > static_cast<long double>(kMaxBytes))
    return std::nullopt;
  return static_cast<Bytes>(bytes);
}

std::optional<Bytes> parseBandwidth(std::string_view text) {
  if (text.size() < 2 || text.substr(text.size() - 2) != "/s")
    return std::nullopt;
  return parseBytes(text.substr(0, text.size() - 2));
}

std::optional<double> parseFlops(std::string_view text) {
  long double number = 0;
  const Suffix *suffix = parseScaled(text, kCounts, number);
  if (!suffix)
    return std::nullopt;
  return static_cast<double>(number * suffix->scale);
}

} // namespace sluice
