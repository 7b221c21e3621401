#include "compiler/partition/Partition.h"
#include "tests/Catch.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <tuple>

using namespace sluice;

namespace {

using Counts = std::vector<uint32_t>;

struct Quality {
  Ticks largest = 0;
  unsigned __int128 squares = 0;
};

Quality qualityOf(const std::vector<Ticks> &costs, const Counts &counts) {
  Quality quality;
  auto at = costs.begin();
  for (uint32_t count : counts) {
    Ticks sum = std::accumulate(at, at + count, Ticks(0));
    at += count;
    quality.largest = std::max(quality.largest, sum);
    quality.squares += static_cast<unsigned __int128>(sum) * sum;
  }
  return quality;
}

/// The best of all ways to cut, by trying them: least largest sum, least sum
/// of squares, larger counts first.
void tryAll(const std::vector<Ticks> &costs, uint32_t stages, uint32_t used,
            Counts &counts, Counts &best) {
  uint32_t left = static_cast<uint32_t>(costs.size()) - used;
  if (counts.size() + 1 == stages) {
    counts.push_back(left);
    auto key = [&](const Counts &cut) {
      Quality quality = qualityOf(costs, cut);
      return std::tuple(quality.largest, quality.squares);
    };
    if (best.empty() || key(counts) < key(best) ||
        (key(counts) == key(best) && counts > best))
      best = counts;
    counts.pop_back();
    return;
  }
  uint32_t others = stages - static_cast<uint32_t>(counts.size()) - 1;
  for (uint32_t count = 1; count + others <= left; ++count) {
    counts.push_back(count);
    tryAll(costs, stages, used + count, counts, best);
    counts.pop_back();
  }
}

} // namespace

TEST_CASE("partition: equal layers spread evenly, larger parts first") {
  CHECK(partitionMinMax(std::vector<Ticks>(24, 5), 4) == Counts{6, 6, 6, 6});
  CHECK(partitionMinMax(std::vector<Ticks>(38, 5), 8) ==
        Counts{5, 5, 5, 5, 5, 5, 4, 4});
  CHECK(partitionMinMax(std::vector<Ticks>(42, 1), 16) ==
        Counts{3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 2, 2, 2, 2, 2, 2});
  CHECK(partitionMinMax(std::vector<Ticks>(5, 0), 2) == Counts{4, 1});
}

TEST_CASE("partition: fewer layers than parts") {
  CHECK(partitionMinMax({4, 5}, 4) == Counts{1, 1, 0, 0});
  CHECK(partitionMinMax({4, 5}, 2) == Counts{1, 1});
  CHECK(partitionMinMax({}, 2) == Counts{0, 0});
  CHECK(partitionMinMax({1, 2, 3}, 1) == Counts{3});
}

TEST_CASE("partition: small inputs match trying all cuts") {
  std::mt19937 random(7);
  for (unsigned round = 0; round < 3000; ++round) {
    uint32_t layers = 1 + random() % 11;
    uint32_t stages = 1 + random() % layers;
    Ticks range = round % 3 == 0 ? 2 : round % 3 == 1 ? 10 : 1'000'000'000'000;
    std::vector<Ticks> costs(layers);
    for (Ticks &cost : costs)
      cost = static_cast<Ticks>((uint64_t(random()) << 20) % range);
    Counts counts, best;
    tryAll(costs, stages, 0, counts, best);
    CAPTURE(costs, stages);
    REQUIRE(partitionMinMax(costs, stages) == best);
  }
}

TEST_CASE("partition: largest times do not overflow") {
  Ticks huge = kMaxTicks / 4;
  CHECK(partitionMinMax({huge, huge, huge, huge}, 2) == Counts{2, 2});
}

TEST_CASE("partition: many layers and one that leaves the others room") {
  std::mt19937 random(3);
  std::vector<Ticks> costs(10'000);
  for (Ticks &cost : costs)
    cost = 1 + random() % 1'000'000;
  costs.back() = 1'000'000'000;
  Counts counts = partitionMinMax(costs, 64);
  CHECK(std::accumulate(counts.begin(), counts.end(), 0u) == 10'000);
  CHECK(qualityOf(costs, counts).largest == 1'000'000'000);
  CHECK(counts.back() == 1);
}

// Past the budget of the refinement the largest part stays exact.
TEST_CASE("partition: very many layers and parts") {
  Counts even = partitionMinMax(std::vector<Ticks>(250'001, 3), 60'000);
  CHECK(std::count(even.begin(), even.end(), 5u) == 10'001);
  CHECK(std::count(even.begin(), even.end(), 4u) == 49'999);
  CHECK(std::is_sorted(even.rbegin(), even.rend()));
  std::mt19937 random(5);
  std::vector<Ticks> costs(200'000);
  for (Ticks &cost : costs)
    cost = 1 + random() % 10;
  costs[77] = 50;
  Counts counts = partitionMinMax(costs, 50'000);
  CHECK(std::accumulate(counts.begin(), counts.end(), 0u) == 200'000);
  CHECK(std::count(counts.begin(), counts.end(), 0u) == 0);
  CHECK(qualityOf(costs, counts).largest == 50);
}
