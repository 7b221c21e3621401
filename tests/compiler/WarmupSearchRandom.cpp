//===- tests/compiler/WarmupSearchRandom.cpp - auto against many lists ---===//
//
// Random small pipelines and limits: what a search finds is held against all
// falling lists where they are few, else against random ones, each compiled as
// a spec's own counts are.
//
//===----------------------------------------------------------------------===//
#include "compiler/passes/PassManager.h"
#include "compiler/spec/Parser.h"
#include "tests/Catch.h"

#include <algorithm>
#include <optional>
#include <random>
#include <set>
#include <string>

using namespace sluice;

namespace {

using List = std::vector<uint32_t>;

/// What a spec's plan comes to.
struct Measured {
  Ticks objective = 0;
  Bytes largest = 0;
  List counts;
  std::vector<std::string> bounds;
};

std::string textOf(const List &counts) {
  std::string text;
  for (uint32_t count : counts)
    text += (text.empty() ? "[" : ", ") + std::to_string(count);
  return text + "]";
}

class RandomSearch {
public:
  explicit RandomSearch(unsigned seed) : random(seed) {
    const char *const schedules[] = {"1f1b", "eager-1f1b", "zb-h1", "zb-h2",
                                     "interleaved-1f1b"};
    schedule = schedules[pick(0, 4)];
    ranks = pick(2, 4);
    chunks = schedule == "interleaved-1f1b" ? pick(1, 2) : 1;
    microbatches = pick(2, 7);
    span = pick(0, 3) == 0;
    latency = std::to_string(pick(0, 4) * pick(0, 1) * 0.5);
    std::string layer = layerText();
    bool equal = pick(0, 1) != 0;
    for (uint32_t stage = 0; stage < ranks * chunks; ++stage)
      layers += (layers.empty() ? "" : ", ") + (equal ? layer : layerText());
  }

  uint32_t pick(uint32_t low, uint32_t high) {
    return low + static_cast<uint32_t>(random() % (high - low + 1));
  }
  uint32_t most() const { return microbatches * chunks; }
  bool isOneChunk() const { return chunks == 1; }

  std::string text(const std::string &warmup, Bytes limit) const {
    return "sluice: 1\nmodel: {layers: [" + layers +
           "]}\npipeline: {ranks: " + std::to_string(ranks) +
           ", microbatches: " + std::to_string(microbatches) +
           ", virtual_stages: " + std::to_string(chunks) +
           ", schedule: " + schedule +
           ", objective: " + (span ? "span" : "makespan") +
           ", warmup: " + warmup +
           (limit != 0 ? ", memory_limit: " + std::to_string(limit) : "") +
           "}\ncluster: {link: {latency: " + latency + "}}\n";
  }

  /// None if it does not run; over the limit or not, it is measured.
  std::optional<Measured> measure(const std::string &warmup,
                                  Bytes limit = 0) const {
    Diagnostics diagnostics;
    Compilation c(diagnostics);
    c.spec = parseSpec(text(warmup, limit), "job.yaml", {}, diagnostics);
    if (!c.spec || !runPipeline(pipelineBefore("verify-plan"), c))
      return std::nullopt;
    Measured found{span ? c.timing->span : c.timing->makespan, 0,
                   c.warmup->perRank, c.warmup->bounds};
    for (const RankPlan &rank : c.plan->ranks)
      found.largest = std::max(found.largest, rank.arenaBytes);
    return found;
  }

  /// All lists that fall, or as many random ones, that run.
  std::vector<Measured> lists() {
    std::set<List> all;
    collect({}, all);
    std::vector<List> order(all.begin(), all.end());
    std::shuffle(order.begin(), order.end(), random);
    order.resize(std::min<size_t>(order.size(), 300));
    order.emplace_back(ranks, 0);
    std::vector<Measured> measured;
    for (const List &counts : order)
      if (std::optional<Measured> found = measure(textOf(counts)))
        measured.push_back(*std::move(found));
    return measured;
  }

private:
  std::string layerText() {
    auto number = [&](uint32_t low, uint32_t high) {
      return std::to_string(pick(low, high));
    };
    uint32_t saved = pick(1, 3) * 512, kept = pick(0, 2) * saved / 2;
    return "{name: l, forward: " + number(1, 3) +
           ", backward_input: " + number(1, 3) +
           ", backward_weight: " + number(0, 2) +
           ", activation_bytes: " + std::to_string(saved) +
           ", kept_for_weight: " + std::to_string(kept) +
           ", output_bytes: " + std::to_string(pick(0, 2) * 256) +
           ", params: " + number(0, 20) +
           ", workspace_bytes: " + std::to_string(pick(0, 1) * 300) + "}";
  }

  void collect(List begun, std::set<List> &all) const {
    if (begun.size() == ranks) {
      all.insert(begun);
      return;
    }
    for (uint32_t count = 0; count <= (begun.empty() ? most() : begun.back());
         ++count) {
      begun.push_back(count);
      collect(begun, all);
      begun.pop_back();
    }
  }

  std::mt19937 random;
  std::string schedule, layers, latency;
  uint32_t ranks, chunks, microbatches;
  bool span;
};

/// "warmup of rank R: …, memory": R.
std::optional<uint32_t> boundRank(const std::string &told) {
  const std::string begin = "warmup of rank ", end = ", memory";
  if (told.rfind(begin, 0) != 0 || told.size() < end.size() ||
      told.compare(told.size() - end.size(), end.size(), end) != 0)
    return std::nullopt;
  return static_cast<uint32_t>(std::stoul(told.substr(begin.size())));
}

/// Where memory is said to bound a rank, one more there does not fit.
void checkBounds(const RandomSearch &of, const Measured &found, Bytes limit) {
  for (const std::string &told : found.bounds) {
    std::optional<uint32_t> rank = boundRank(told);
    if (!rank)
      continue;
    List more = found.counts;
    ++more[*rank];
    for (uint32_t before = 0; before < *rank; ++before)
      more[before] = std::max(more[before], more[*rank]);
    std::optional<Measured> raised = of.measure(textOf(more));
    INFO(told);
    CHECK((!raised || raised->largest > limit));
  }
}

struct Sums {
  unsigned found = 0, best = 0;
  double excess = 0;
};

void checkLimit(const RandomSearch &of, const std::vector<Measured> &lists,
                Bytes limit, Sums &sums) {
  INFO(of.text("auto", limit));
  std::optional<Measured> found = of.measure("auto", limit);
  REQUIRE(found);
  const Measured *best = nullptr;
  for (const Measured &list : lists)
    if (list.largest <= limit && (!best || list.objective < best->objective))
      best = &list;
  if (!best)
    return;
  INFO("best " << textOf(best->counts) << " " << best->objective << ", found "
               << textOf(found->counts) << " " << found->objective);
  CHECK(found->largest <= limit);
  checkBounds(of, *found, limit);
  double excess = double(found->objective) / double(best->objective) - 1;
  ++sums.found;
  sums.best += excess <= 0;
  sums.excess += std::max(0.0, excess);
  CHECK(excess <= 0.15);
}

} // namespace

TEST_CASE("warmup: auto fits where any list does, and is near the best") {
  Sums sums;
  for (unsigned seed = 0; seed < 60; ++seed) {
    RandomSearch of(seed);
    std::vector<Measured> lists = of.lists();
    Bytes low = ~Bytes(0), high = 0;
    for (const Measured &list : lists) {
      low = std::min(low, list.largest);
      high = std::max(high, list.largest);
    }
    checkLimit(of, lists, high, sums);
    checkLimit(of, lists, low, sums);
    for (unsigned i = 0; i < 4; ++i)
      checkLimit(of, lists, low + (high - low) * i / 5 + of.pick(0, 255), sums);
  }
  // Some thirty of up to hundreds of lists are measured, each one or two ranks
  // off the best before: it ends where only a change of more of them would
  // help.
  CHECK(sums.best >= 0.99 * sums.found);
  CHECK(sums.excess <= 0.001 * sums.found);
}
