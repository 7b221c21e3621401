//===- ir/Units.h - Times and sizes, exact, with their text --------------===//
//
// Times are integers, so that sums do not depend on their order and two equal
// times compare equal: a tick is 1e-6 of an abstract unit or 1e-12 s.
//
//===----------------------------------------------------------------------===//
#ifndef SLUICE_IR_UNITS_H
#define SLUICE_IR_UNITS_H

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace sluice {

using Ticks = int64_t;
using Bytes = uint64_t;

/// What a time of a spec counts: abstract units (plain numbers) or seconds.
enum class TimeUnit : uint8_t { Unit, Seconds };

/// Ticks in one unit or one second.
constexpr Ticks ticksPer(TimeUnit unit) {
  return unit == TimeUnit::Unit ? 1'000'000 : 1'000'000'000'000;
}

/// No single time and no makespan may exceed this, so that sums of two never
/// overflow.
inline constexpr Ticks kMaxTicks = Ticks(1) << 61;

/// `time` and `duration` added, at most kMaxTicks; neither is over it.
constexpr Ticks later(Ticks time, Ticks duration) {
  return time + duration < kMaxTicks ? time + duration : kMaxTicks;
}

/// No single size and no arena may exceed this, so that sums of two never
/// overflow.
inline constexpr Bytes kMaxBytes = Bytes(1) << 61;

/// "unit" or "s", as in `report --json`.
std::string_view timeUnitName(TimeUnit unit);

/// Exact decimal number of units or seconds without trailing zeros: "33",
/// "0.0185".
std::string formatDecimal(Ticks ticks, TimeUnit unit);

/// For people: "33", "18.522 ms", at most four significant decimals.
std::string formatTime(Ticks ticks, TimeUnit unit);

/// For people: "512 B", "1.50 GiB"; two decimals from KiB on.
std::string formatBytes(Bytes bytes);

/// A time as a spec writes it.
struct ParsedTime {
  Ticks ticks;
  std::optional<TimeUnit> unit; ///< none for 0, which fits both
};

/// Reads "1.5ms", "20us", "3" (abstract units). Not negative, not over
/// kMaxTicks; rounds to the nearest tick.
std::optional<ParsedTime> parseTime(std::string_view text);

/// Reads "80GiB", "512", "1.5GB"; rounds to the nearest byte. A bare number
/// counts bytes. Not over kMaxBytes.
std::optional<Bytes> parseBytes(std::string_view text);

/// Reads a bandwidth "50GB/s" in bytes per second.
std::optional<Bytes> parseBandwidth(std::string_view text);

/// Reads "989T", "1.5P", "312e12": operations per second; plain or with
/// k, M, G, T, P.
std::optional<double> parseFlops(std::string_view text);

} // namespace sluice

#endif // SLUICE_IR_UNITS_H
