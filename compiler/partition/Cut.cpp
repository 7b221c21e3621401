#include "compiler/partition/Cut.h"
#include "compiler/partition/Partition.h"
#include "ir/Words.h"

#include <algorithm>
#include <numeric>

namespace sluice {

namespace {

using Counts = std::vector<uint32_t>;

/// Finds how many layers each stage takes, as the layout says. Counts are of
/// counted layers, but for `balanced` and `lettered`, whose are of all; MTP
/// layers and head then stand in the last stage.
class Cutter {
public:
  Cutter(const Spec &theSpec, const Model &theModel, uint32_t stageCount,
         Diagnostics &sink)
      : spec(theSpec), model(theModel), diagnostics(sink),
        layers(theModel.countedLayers()), stages(stageCount),
        embedding(model.layers.front().kind == LayerKind::Embedding),
        head(model.layers.back().kind == LayerKind::Head),
        mtp(static_cast<uint32_t>(model.layers.size()) - layers - embedding -
            head) {}

  /// Entries of model.layers per stage; none after a report.
  std::optional<Counts> cut() const {
    const Layout &layout = spec.pipeline.layout;
    if (std::holds_alternative<LayoutAuto>(layout))
      return balanced();
    if (const auto *letters = std::get_if<LayoutString>(&layout))
      return lettered(*letters);
    std::optional<Counts> counts;
    if (const auto *list = std::get_if<Counts>(&layout))
      counts = listed(*list);
    else if (const auto *ends = std::get_if<LayoutEnds>(&layout))
      counts = withEnds(*ends);
    else
      counts = even(std::get<LayoutEven>(layout));
    if (!counts || !checkEmpty(*counts))
      return std::nullopt;
    counts->front() += embedding;
    counts->back() += mtp + head;
    return counts;
  }

private:
  std::nullopt_t fail(const std::string &message) const {
    const Located<Layout> &layout = spec.pipeline.layout;
    return fail(layout.given ? layout.where : spec.pipeline.ranks.where,
                message);
  }
  std::nullopt_t fail(SourceLocation where, const std::string &message) const {
    diagnostics.error(where, message);
    return std::nullopt;
  }

  std::optional<Counts> balanced() const;
  std::optional<Counts> even(LayoutEven withEnds) const;
  std::optional<Counts> listed(const Counts &list) const;
  std::optional<Counts> withEnds(LayoutEnds ends) const;
  std::optional<Counts> lettered(const LayoutString &letters) const;
  bool checkLetters(const LayoutString &letters, uint32_t LayoutStage::*count,
                    uint32_t LayoutStage::*first, uint32_t wanted,
                    const std::string &kind) const;
  std::string stageFault(size_t found) const;
  bool checkEmpty(const Counts &counts) const;

  const Spec &spec;
  const Model &model;
  Diagnostics &diagnostics;
  uint32_t layers, stages;
  bool embedding, head;
  uint32_t mtp; ///< layers behind the model's own, before the head
};

Ticks largestPart(const std::vector<Ticks> &costs, const Counts &counts) {
  Ticks largest = 0;
  auto at = costs.begin();
  for (uint32_t count : counts) {
    largest = std::max(largest, std::accumulate(at, at + count, Ticks(0)));
    at += count;
  }
  return largest;
}

/// Min-max over `costs` where the first two and the last two may be bound
/// together, to count as one; empty if that leaves fewer than `stages`.
Counts bound(std::vector<Ticks> costs, uint32_t stages, bool first, bool last) {
  if (costs.size() < size_t(stages) + first + last)
    return {};
  if (first) {
    costs[1] += costs[0];
    costs.erase(costs.begin());
  }
  if (last) {
    costs[costs.size() - 2] += costs.back();
    costs.pop_back();
  }
  Counts counts = partitionMinMax(costs, stages);
  counts.front() += first;
  counts.back() += last;
  return counts;
}

/// The exact min-max over all layers; of its solutions one that leaves neither
/// embedding nor head without a block, if there is one.
std::optional<Counts> Cutter::balanced() const {
  if (stages > model.layers.size())
    return fail("there are " + number(stages) + " stages, but only " +
                number(model.layers.size()) + " layers" +
                (embedding ? ", embedding and head counted" : ""));
  std::vector<Ticks> costs;
  // Policies of single stages are not known before the stages are.
  const auto *all =
      std::get_if<RecomputePolicy>(&spec.pipeline.recompute.value);
  RecomputePolicy policy = all ? *all : RecomputePolicy::None;
  for (const Layer &layer : model.layers)
    costs.push_back(layer.forward + layer.backwardInput + layer.backwardWeight +
                    recomputeTime(layer, policy));
  Counts best = partitionMinMax(costs, stages);
  Ticks largest = largestPart(costs, best);
  constexpr bool kBindings[][2] = {{true, true}, {true, false}, {false, true}};
  for (auto [first, last] : kBindings) {
    if ((first && !embedding) || (last && !head))
      continue;
    Counts counts = bound(costs, stages, first, last);
    if (!counts.empty() && largestPart(costs, counts) == largest)
      return counts;
  }
  return best;
}

std::optional<Counts> Cutter::even(LayoutEven withEnds) const {
  if ((withEnds.embedding && !embedding) || (withEnds.head && !head))
    return fail("layout counts " +
                std::string(withEnds.embedding ? "embedding" : "head") +
                ", but a model of explicit layers has none");
  uint32_t ends = withEnds.embedding + withEnds.head;
  uint64_t all = uint64_t(layers) + ends;
  if (all % stages != 0) {
    std::string with = ends == 2            ? "embedding and head"
                       : withEnds.embedding ? "the embedding"
                                            : "the head";
    return fail("layer count is " + number(layers) +
                (ends == 0 ? "" : ", " + number(all) + " with " + with) +
                ", not divisible by " + counted(stages, "stage"));
  }
  Counts counts(stages, static_cast<uint32_t>(all / stages));
  counts.front() -= withEnds.embedding;
  counts.back() -= withEnds.head;
  return counts;
}

/// What is wrong where a layout has so many stages.
std::string Cutter::stageFault(size_t found) const {
  return "layout has " + counted(found, "stage") + ", but there are " +
         number(stages) + " on " + counted(spec.pipeline.ranks, "rank");
}

std::optional<Counts> Cutter::listed(const Counts &list) const {
  bool ok = true;
  if (list.size() != stages) {
    fail(stageFault(list.size()));
    ok = false;
  }
  uint64_t sum = std::accumulate(list.begin(), list.end(), uint64_t(0));
  if (sum != layers) {
    fail("layout holds " + counted(sum, "layer") + ", but the model has " +
         number(layers));
    ok = false;
  }
  return ok ? std::optional(list) : std::nullopt;
}

/// Reports, at the letter, where a string has too few or too many of a kind.
bool Cutter::checkLetters(const LayoutString &letters,
                          uint32_t LayoutStage::*count,
                          uint32_t LayoutStage::*first, uint32_t wanted,
                          const std::string &kind) const {
  uint64_t sum = 0;
  uint32_t at = 0; // of the last one, or of the first too many
  for (const LayoutStage &stage : letters.stages) {
    if (stage.*count != 0 && sum <= wanted)
      at = stage.*first;
    sum += stage.*count;
  }
  if (sum == wanted)
    return true;
  SourceLocation where = letters.where;
  where.column += at;
  fail(where, "layout holds " + counted(sum, kind) + ", but the model has " +
                  number(wanted));
  return false;
}

std::optional<Counts> Cutter::lettered(const LayoutString &letters) const {
  size_t found = letters.stages.size();
  if (found != stages) {
    SourceLocation where = letters.where;
    where.column += letters.stages[std::min<size_t>(stages, found - 1)].bar;
    fail(where, stageFault(found));
  }
  bool ok = checkLetters(letters, &LayoutStage::layers,
                         &LayoutStage::firstLayer, layers, "layer");
  ok &= checkLetters(letters, &LayoutStage::mtp, &LayoutStage::firstMtp, mtp,
                     "MTP layer");
  if (!ok || found != stages)
    return std::nullopt;
  Counts counts;
  for (const LayoutStage &stage : letters.stages)
    counts.push_back(stage.layers + stage.mtp);
  counts.front() += embedding;
  counts.back() += head;
  return counts;
}

std::optional<Counts> Cutter::withEnds(LayoutEnds ends) const {
  uint64_t taken = uint64_t(ends.first.value_or(0)) + ends.last.value_or(0);
  uint32_t given = ends.first.has_value() + ends.last.has_value();
  std::string which = !ends.last    ? "first"
                      : !ends.first ? "last"
                                    : "first and last";
  if (stages < given)
    return fail("layout with first and last needs at least 2 stages, but "
                "there is 1");
  uint32_t between = stages - given;
  if (taken > layers || (between == 0 && taken != layers))
    return fail("layout holds " + counted(taken, "layer") + " in its " + which +
                " stage, but the model has " + number(layers));
  uint32_t rest = layers - static_cast<uint32_t>(taken);
  if (between != 0 && rest % between != 0)
    return fail("layout leaves " + counted(rest, "layer") + " for " +
                counted(between, "stage") +
                (!ends.last    ? " behind the first"
                 : !ends.first ? " before the last"
                               : " between the first and the last") +
                ", not divisible");
  Counts counts(stages, between == 0 ? 0 : rest / between);
  counts.front() = ends.first.value_or(counts.front());
  counts.back() = ends.last.value_or(counts.back());
  return counts;
}

/// A stage must have something to compute: a layer, embedding or head.
bool Cutter::checkEmpty(const Counts &counts) const {
  for (uint32_t stage = 0; stage < stages; ++stage) {
    bool other =
        (stage == 0 && embedding) || (stage + 1 == stages && mtp + head != 0);
    if (counts[stage] == 0 && !other) {
      fail("layout leaves stage " + number(stage) + " without layers");
      return false;
    }
  }
  return true;
}

} // namespace

Ticks recomputeTime(const Layer &layer, RecomputePolicy policy) {
  switch (policy) {
  case RecomputePolicy::None:
    return 0;
  case RecomputePolicy::Selective:
    return layer.recomputeSelective;
  case RecomputePolicy::Full:
    return layer.recomputeFull;
  }
  return 0;
}

std::optional<size_t> stagesOf(const Layout &layout) {
  if (const auto *list = std::get_if<Counts>(&layout))
    return list->size();
  if (const auto *letters = std::get_if<LayoutString>(&layout))
    return letters->stages.size();
  return std::nullopt;
}

std::optional<Counts> cutLayers(const Spec &spec, const Model &model,
                                uint32_t stages, Diagnostics &diagnostics) {
  return Cutter(spec, model, stages, diagnostics).cut();
}

} // namespace sluice
