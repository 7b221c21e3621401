#include "compiler/partition/Partition.h"
#include "ir/ModuleKeys.h"

#include <algorithm>
#include <numeric>

namespace sluice {

namespace {

using Counts = std::vector<uint32_t>;

std::string number(uint64_t value) { return std::to_string(value); }

/// A layer's part of R.
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

/// Finds how many layers each stage takes, as the layout says. Counts are of
/// counted layers, but for `balanced`, whose are of all.
class Cutter {
public:
  Cutter(const Spec &theSpec, const Model &theModel, uint32_t stageCount,
         Diagnostics &sink)
      : spec(theSpec), model(theModel), diagnostics(sink),
        layers(theModel.countedLayers()), stages(stageCount),
        embedding(model.layers.front().kind == LayerKind::Embedding),
        head(model.layers.back().kind == LayerKind::Head) {}

  /// Entries of model.layers per stage; none after a report.
  std::optional<Counts> cut() const {
    const Layout &layout = spec.pipeline.layout;
    if (std::holds_alternative<LayoutAuto>(layout))
      return balanced();
    std::optional<Counts> counts;
    if (const auto *list = std::get_if<Counts>(&layout))
      counts = listed(*list);
    else if (const auto *ends = std::get_if<LayoutEnds>(&layout))
      counts = withEnds(*ends);
    else
      counts = even();
    if (!counts || !checkEmpty(*counts))
      return std::nullopt;
    counts->front() += embedding;
    counts->back() += head;
    return counts;
  }

private:
  std::nullopt_t fail(const std::string &message) const {
    const Located<Layout> &layout = spec.pipeline.layout;
    SourceLocation where =
        layout.given ? layout.where : spec.pipeline.ranks.where;
    diagnostics.error(where, message);
    return std::nullopt;
  }

  std::optional<Counts> balanced() const;
  std::optional<Counts> even() const;
  std::optional<Counts> listed(const Counts &list) const;
  std::optional<Counts> withEnds(LayoutEnds ends) const;
  bool checkEmpty(const Counts &counts) const;

  const Spec &spec;
  const Model &model;
  Diagnostics &diagnostics;
  uint32_t layers, stages;
  bool embedding, head;
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

std::optional<Counts> Cutter::even() const {
  if (layers % stages != 0)
    return fail("layer count is " + number(layers) + ", not divisible by " +
                number(stages) + " stages");
  return Counts(stages, layers / stages);
}

std::optional<Counts> Cutter::listed(const Counts &list) const {
  bool ok = true;
  if (list.size() != stages) {
    fail("layout has " + number(list.size()) +
         (list.size() == 1 ? " stage" : " stages") + ", but there are " +
         number(stages) + " on " + number(spec.pipeline.ranks) +
         (spec.pipeline.ranks.value == 1 ? " rank" : " ranks"));
    ok = false;
  }
  uint64_t sum = std::accumulate(list.begin(), list.end(), uint64_t(0));
  if (sum != layers) {
    fail("layout holds " + number(sum) + " layers, but the model has " +
         number(layers));
    ok = false;
  }
  return ok ? std::optional(list) : std::nullopt;
}

std::optional<Counts> Cutter::withEnds(LayoutEnds ends) const {
  uint64_t taken = uint64_t(ends.first) + ends.last;
  if (stages == 1)
    return fail("layout with first and last needs at least 2 stages, but "
                "there is 1");
  if (taken > layers || (stages == 2 && taken != layers))
    return fail("layout holds " + number(taken) +
                " layers in its first and last stage, but the model has " +
                number(layers));
  Counts counts(stages, 0);
  if (stages > 2) {
    uint32_t rest = layers - static_cast<uint32_t>(taken);
    if (rest % (stages - 2) != 0)
      return fail("layout leaves " + number(rest) + " layers for " +
                  number(stages - 2) +
                  " stages between the first and the last, not divisible");
    std::fill(counts.begin(), counts.end(), rest / (stages - 2));
  }
  counts.front() = ends.first;
  counts.back() = ends.last;
  return counts;
}

/// A stage must have something to compute: a layer, embedding or head.
bool Cutter::checkEmpty(const Counts &counts) const {
  for (uint32_t stage = 0; stage < stages; ++stage) {
    bool other = (stage == 0 && embedding) || (stage + 1 == stages && head);
    if (counts[stage] == 0 && !other) {
      fail("layout leaves stage " + number(stage) + " without layers");
      return false;
    }
  }
  return true;
}

/// What of a layer's activation its forward keeps for the weights' gradients
/// until after I, or by `policy` for R too.
Bytes keptOf(const Layer &layer, RecomputePolicy policy) {
  return policy == RecomputePolicy::Selective ? layer.activation - layer.remade
                                              : layer.keptForWeight;
}

/// Adds one layer to a stage.
void addLayer(Stage &stage, const Layer &layer) {
  stage.layers += layer.counted();
  stage.forward += layer.forward;
  stage.backwardInput += layer.backwardInput;
  stage.backwardWeight += layer.backwardWeight;
  stage.overlapSaving += layer.overlapSaving;
  stage.parameterCount += layer.parameters;
  stage.activeParameterCount += layer.parameters;
  stage.bytes.activation += layer.activation;
  stage.bytes.keptForWeight += keptOf(layer, stage.recomputePolicy);
  stage.bytes.workspace = std::max(stage.bytes.workspace, layer.workspace);
  stage.recompute += recomputeTime(layer, stage.recomputePolicy);
  if (stage.recomputePolicy == RecomputePolicy::Full)
    stage.bytes.workspace =
        std::max(stage.bytes.workspace, layer.forwardWorkspace);
}

/// The policy of a stage whose layers are [begin, end): that of the spec, but
/// for selective where there is nothing to make again.
RecomputePolicy policyOf(const Spec &spec, const Model &model, size_t stage,
                         size_t begin, size_t end) {
  const Recompute &recompute = spec.pipeline.recompute;
  const auto *list = std::get_if<std::vector<RecomputePolicy>>(&recompute);
  const auto *all = std::get_if<RecomputePolicy>(&recompute);
  RecomputePolicy policy = list  ? (*list)[stage]
                           : all ? *all
                                 : RecomputePolicy::None; // auto: not yet known
  bool remakes =
      std::any_of(model.layers.begin() + begin, model.layers.begin() + end,
                  [](const Layer &of) { return of.remade != 0; });
  return policy == RecomputePolicy::Selective && !remakes
             ? RecomputePolicy::None
             : policy;
}

/// Whether `pipeline.recompute` has one policy for all stages, or as many as
/// there are.
bool checkRecompute(const Spec &spec, uint32_t stages,
                    Diagnostics &diagnostics) {
  const Located<Recompute> &given = spec.pipeline.recompute;
  const auto *list = std::get_if<std::vector<RecomputePolicy>>(&*given);
  if (!list || list->size() == stages)
    return true;
  diagnostics.error(given.where,
                    "recompute has " + number(list->size()) +
                        (list->size() == 1 ? " entry" : " entries") +
                        ", there are " + number(stages) + " stages");
  return false;
}

/// Parameters of the table that the embedding and a tied head share; 0 where
/// they are not tied.
uint64_t tiedTable(const Spec &spec) {
  const std::optional<TransformerSpec> &shape = spec.model.transformer;
  if (!shape || !shape->tiedEmbeddings)
    return 0;
  return uint64_t(shape->vocab) * shape->hidden;
}

/// Bytes of the stage's own parameters, and of those of `table` if it has the
/// head: of a copy where the embedding is elsewhere; else of gradients alone,
/// since those of embedding and head are summed apart until the step.
void setState(Stage &stage, const Model &model, uint64_t table, bool embedding,
              bool head) {
  uint64_t stored = stage.parameterCount + (head && !embedding ? table : 0);
  uint64_t summed = stage.parameterCount + (head ? table : 0);
  stage.bytes.parameters = stored * model.parameterBytes;
  stage.bytes.gradients = summed * model.gradientBytes;
  stage.bytes.optimizer = stored * model.optimizerBytes;
}

/// The embedding is in the first stage, the head in the last.
void tieEnds(const Spec &spec, const Model &model, std::vector<Stage> &stages) {
  Bytes bytes = tiedTable(spec) * model.gradientBytes;
  if (bytes == 0 || stages.size() < 2)
    return;
  Stage &first = stages.front(), &last = stages.back();
  first.tiedTo = static_cast<Id>(stages.size() - 1);
  last.tiedTo = 0;
  first.bytes.tied = last.bytes.tied = bytes;
}

std::string describe(const Model &model, const Stage &stage, bool embedding,
                     bool head) {
  if (model.description.empty())
    return {};
  auto line = [](const char *key, uint64_t value) {
    return key + ("=" + number(value)) + "\n";
  };
  return model.description + line(stagekeys::kFirstLayer, stage.firstLayer) +
         line(stagekeys::kStageLayers, stage.layers) +
         line(stagekeys::kEmbedding, embedding) + line(stagekeys::kHead, head);
}

/// The stage of the layers [begin, end), of which `counted` come before it.
Stage makeStage(const Spec &spec, const Model &model, size_t begin, size_t end,
                uint32_t counted, RecomputePolicy policy) {
  Stage stage;
  stage.firstLayer = counted;
  stage.location = model.layers[begin].location;
  stage.recomputePolicy = policy;
  if (policy == RecomputePolicy::Full)
    stage.bytes.checkpoint = model.layers[begin].checkpoint;
  for (size_t i = begin; i < end; ++i)
    addLayer(stage, model.layers[i]);
  bool embedding = model.layers[begin].kind == LayerKind::Embedding;
  bool head = model.layers[end - 1].kind == LayerKind::Head;
  setState(stage, model, tiedTable(spec), embedding, head);
  stage.description = describe(model, stage, embedding, head);
  return stage;
}

} // namespace

std::optional<StageGraph> partition(const Spec &spec, const Model &model,
                                    uint32_t stages, Diagnostics &diagnostics) {
  std::optional<Counts> counts = Cutter(spec, model, stages, diagnostics).cut();
  if (!checkRecompute(spec, stages, diagnostics) || !counts)
    return std::nullopt;
  StageGraph graph;
  graph.stages.reserve(counts->size());
  size_t begin = 0;
  uint32_t counted = 0;
  for (uint32_t count : *counts) {
    size_t end = begin + count;
    auto stage = static_cast<Id>(graph.stages.size());
    graph.stages.push_back(makeStage(spec, model, begin, end, counted,
                                     policyOf(spec, model, stage, begin, end)));
    counted += graph.stages.back().layers;
    if (end < model.layers.size())
      graph.edges.push_back({stage, stage + 1, model.layers[end - 1].output});
    begin = end;
  }
  tieEnds(spec, model, graph.stages);
  return graph;
}

} // namespace sluice
