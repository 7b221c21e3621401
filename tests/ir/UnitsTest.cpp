//===- tests/ir/UnitsTest.cpp - Times and sizes at their edges ------------===//
#include "ir/Units.h"
#include "tests/Catch.h"

#include <limits>

using namespace sluice;

static std::optional<Ticks> ticksOf(std::string_view text) {
  std::optional<ParsedTime> time = parseTime(text);
  return time ? std::optional(time->ticks) : std::nullopt;
}

TEST_CASE("units: times round to the nearest tick") {
  CHECK(ticksOf("3") == 3'000'000);
  CHECK(ticksOf("1.5ms") == 1'500'000'000);
  CHECK(ticksOf("20 us") == 20'000'000);
  CHECK(ticksOf("1s") == 1'000'000'000'000);
  CHECK(ticksOf("0.0000004") == 0);
  CHECK(ticksOf("0.0000006") == 1);
  CHECK(ticksOf("0.0004ns") == 0);
  CHECK(ticksOf("0.0006ns") == 1);
}

TEST_CASE("units: only a bare nought fits both kinds of time") {
  CHECK_FALSE(parseTime("0")->unit);
  CHECK_FALSE(parseTime("0.0")->unit);
  CHECK(parseTime("0ms")->unit == TimeUnit::Seconds);
  CHECK(parseTime("1")->unit == TimeUnit::Unit);
  // Not nought, though it rounds to it.
  CHECK(parseTime("1e-9")->unit == TimeUnit::Unit);
  CHECK(parseTime("1e-9")->ticks == 0);
}

TEST_CASE("units: the largest time and the largest size") {
  // 2^61 = 2305843009213693952 ticks or bytes.
  CHECK(ticksOf("2305843009213.693952") == kMaxTicks);
  CHECK_FALSE(ticksOf("2305843009213.693953"));
  CHECK(ticksOf("2305843.009213693952s") == kMaxTicks);
  CHECK_FALSE(ticksOf("2305843.009213693953s"));
  CHECK(parseBytes("2305843009213693952") == kMaxBytes);
  CHECK_FALSE(parseBytes("2305843009213693953"));
  CHECK(parseBytes("2097152TiB") == kMaxBytes);
  CHECK_FALSE(parseBytes("2097153TiB"));
  CHECK_FALSE(parseBytes("1e400"));
  CHECK_FALSE(parseTime("1e4000s"));
}

TEST_CASE("units: what is no time and no size") {
  for (const char *text : {"", "-1", "+1", "-0", " 1", "1  ms", "ms", "1m",
                           "1MS", "0x10", "nan", "inf", "1,5", "1.5.5"}) {
    INFO(text);
    CHECK_FALSE(parseTime(text));
    CHECK_FALSE(parseBytes(text));
  }
  CHECK_FALSE(parseBytes("1KB"));
  CHECK_FALSE(parseBytes("1kiB"));
  CHECK_FALSE(parseBandwidth("1GB"));
  CHECK_FALSE(parseBandwidth("/s"));
  CHECK_FALSE(parseBandwidth("1GB/ms"));
  CHECK_FALSE(parseFlops("1m"));
}

TEST_CASE("units: sizes, bandwidths and operations") {
  CHECK(parseBytes("512") == 512);
  CHECK(parseBytes("1.5GB") == 1'500'000'000);
  CHECK(parseBytes("80GiB") == Bytes(80) << 30);
  CHECK(parseBytes("0.4") == 0);
  CHECK(parseBytes("0.5") == 1);
  CHECK(parseBandwidth("50GB/s") == 50'000'000'000);
  CHECK(parseFlops("989T") == 989e12);
  CHECK(parseFlops("1.5P") == 1.5e15);
  CHECK(parseFlops("0") == 0);
}

TEST_CASE("units: decimals are exact and have no trailing noughts") {
  CHECK(formatDecimal(0, TimeUnit::Unit) == "0");
  CHECK(formatDecimal(33'000'000, TimeUnit::Unit) == "33");
  CHECK(formatDecimal(1, TimeUnit::Unit) == "0.000001");
  CHECK(formatDecimal(1, TimeUnit::Seconds) == "0.000000000001");
  CHECK(formatDecimal(18'500'000'000, TimeUnit::Seconds) == "0.0185");
  CHECK(formatDecimal(-1'500'000, TimeUnit::Unit) == "-1.5");
  CHECK(formatDecimal(kMaxTicks, TimeUnit::Unit) == "2305843009213.693952");
  CHECK(formatDecimal(std::numeric_limits<Ticks>::min(), TimeUnit::Unit) ==
        "-9223372036854.775808");
}

TEST_CASE("units: times for people change their unit at a thousand") {
  CHECK(formatTime(33'000'000, TimeUnit::Unit) == "33");
  CHECK(formatTime(0, TimeUnit::Seconds) == "0 ns");
  CHECK(formatTime(1, TimeUnit::Seconds) == "0.001 ns");
  CHECK(formatTime(999'900, TimeUnit::Seconds) == "999.9 ns");
  CHECK(formatTime(1'000'000, TimeUnit::Seconds) == "1 us");
  CHECK(formatTime(18'522'000'000, TimeUnit::Seconds) == "18.522 ms");
  CHECK(formatTime(1'000'000'000'000, TimeUnit::Seconds) == "1 s");
}

TEST_CASE("units: sizes for people change their unit at 1024") {
  CHECK(formatBytes(0) == "0 B");
  CHECK(formatBytes(1023) == "1023 B");
  CHECK(formatBytes(1024) == "1.00 KiB");
  CHECK(formatBytes(Bytes(3) << 29) == "1.50 GiB");
  CHECK(formatBytes(kMaxBytes) == "2.00 EiB");
}

TEST_CASE("units: sums of times stop at the largest") {
  CHECK(later(1, 2) == 3);
  CHECK(later(kMaxTicks, 0) == kMaxTicks);
  CHECK(later(kMaxTicks - 1, 1) == kMaxTicks);
  CHECK(later(kMaxTicks, kMaxTicks) == kMaxTicks);
}
