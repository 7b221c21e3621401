#include "compiler/partition/Partition.h"
#include "compiler/partition/Cut.h"
#include "ir/ModuleKeys.h"
#include "ir/Words.h"

#include <algorithm>

namespace sluice {

namespace {

/// What of a layer's activation its forward keeps for the weights' gradients
/// until after I, or by `policy` for R too.
Bytes keptOf(const Layer &layer, RecomputePolicy policy) {
  return policy == RecomputePolicy::Selective ? layer.activation - layer.remade
                                              : layer.keptForWeight;
}

/// Adds one layer to a stage.
void addLayer(Stage &stage, const Layer &layer) {
  RecomputePolicy policy = stage.recomputePolicy;
  stage.layers += layer.counted();
  stage.forward += layer.forward;
  stage.backwardInput += layer.backwardInput;
  stage.backwardWeight += layer.backwardWeight;
  stage.overlapSaving += layer.overlapSaving;
  stage.parameterCount += layer.parameters;
  stage.activeParameterCount += layer.activeParameters;
  stage.recompute += recomputeTime(layer, policy);
  stage.bytes.activation += layer.activation;
  stage.bytes.keptForWeight += keptOf(layer, policy);
  stage.bytes.workspace = std::max(stage.bytes.workspace, layer.workspace);
  if (policy == RecomputePolicy::Full)
    stage.bytes.workspace =
        std::max(stage.bytes.workspace, layer.forwardWorkspace);
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

/// Whether `pipeline.offload` has one word for all stages, or as many as there
/// are.
bool checkOffload(const Spec &spec, uint32_t stages, Diagnostics &diagnostics) {
  const auto *list = std::get_if<std::vector<bool>>(&*spec.pipeline.offload);
  if (!list || list->size() == stages)
    return true;
  diagnostics.error(spec.pipeline.offload.where,
                    "offload has " + number(list->size()) +
                        (list->size() == 1 ? " entry" : " entries") +
                        ", there are " + number(stages) + " stages");
  return false;
}

bool offloads(const Spec &spec, size_t stage) {
  const Offload &offload = *spec.pipeline.offload;
  const auto *list = std::get_if<std::vector<bool>>(&offload);
  return list ? (*list)[stage] : std::get<bool>(offload);
}

/// The policy of a stage whose layers are [begin, end): that of the spec, but
/// for one that has no layers, and for selective where nothing is made again.
RecomputePolicy policyOf(const Spec &spec, const Model &model, size_t stage,
                         size_t begin, size_t end) {
  const Recompute &recompute = spec.pipeline.recompute;
  const auto *list = std::get_if<std::vector<RecomputePolicy>>(&recompute);
  const auto *all = std::get_if<RecomputePolicy>(&recompute);
  RecomputePolicy policy = list  ? (*list)[stage]
                           : all ? *all
                                 : RecomputePolicy::None; // auto: not yet known
  auto does = [&](const Layer &layer) {
    return policy != RecomputePolicy::Selective || layer.remade != 0;
  };
  return std::any_of(model.layers.begin() + begin, model.layers.begin() + end,
                     does)
             ? policy
             : RecomputePolicy::None;
}

/// What a stage has besides blocks.
struct StageParts {
  bool embedding = false, mtp = false, head = false;
};

/// So many that they can be cut into equal parts.
HeldParameters padded(const HeldParameters &held, uint32_t parts) {
  if (parts == 1)
    return held;
  uint64_t count = held.dense + held.experts;
  return {(count / parts + (count % parts != 0)) * parts, 0};
}

/// Bytes of what the stage holds itself, and of the tied table if it has the
/// head: of a copy where the embedding is elsewhere; else of gradients alone,
/// since those of embedding and head are summed apart until the step. Layers of
/// multi-token prediction use both (Megatron-LM): copies of those that are
/// elsewhere. Where its optimizer is in parts, gradients are too, if there is
/// one for each parameter.
void setState(Stage &stage, const Model &model, const HeldParameters &held,
              StageParts has) {
  HeldParameters stored = held, summed = held;
  if (has.head)
    summed.dense += model.tiedTable;
  if (has.head && !has.embedding)
    stored.dense += model.tiedTable;
  if (has.mtp) {
    uint64_t copies = model.tiedTable ? !has.embedding && !has.head
                                      : !has.embedding + !has.head;
    stored.dense += copies * model.table;
    summed.dense += copies * model.table;
  }
  const uint32_t parts = model.optimizerParts;
  const bool areAlike = summed.dense == stored.dense;
  stored = padded(stored, parts);
  summed = areAlike ? stored : summed;
  stage.optimizerParts = parts;
  stage.gradientParts = areAlike ? parts : 1;
  stage.gradientsPartitioned = areAlike && model.gradientsPartitioned;
  StateBytes state = model.stateOf(stored);
  stage.bytes.parameters = state.parameters;
  stage.bytes.gradients = model.stateOf(summed).gradients;
  stage.bytes.optimizer = state.optimizer;
}

void needWhole(Stage &stage) {
  stage.gradientParts = 1;
  stage.gradientsPartitioned = false;
}

/// The embedding is in the first stage, the head in the last.
void tieEnds(const Model &model, std::vector<Stage> &stages) {
  Bytes bytes = model.stateOf({model.tiedTable, 0}).gradients;
  if (bytes == 0 || stages.size() < 2)
    return;
  Stage &first = stages.front(), &last = stages.back();
  first.tiedTo = static_cast<Id>(stages.size() - 1);
  last.tiedTo = 0;
  first.bytes.tied = last.bytes.tied = bytes;
  for (Stage *end : {&first, &last}) // each needs the other's whole
    needWhole(*end);
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

/// The stage of the layers [begin, end), of which `counted` come before it; of
/// none, where a layout string has an empty stage.
Stage makeStage(const Spec &spec, const Model &model, size_t begin, size_t end,
                uint32_t counted, RecomputePolicy policy) {
  Stage stage;
  stage.firstLayer = counted;
  stage.location =
      begin < end ? model.layers[begin].location : spec.pipeline.layout.where;
  stage.recomputePolicy = policy;
  if (policy == RecomputePolicy::Full)
    stage.bytes.checkpoint = model.layers[begin].checkpoint;
  HeldParameters held;
  StageParts has;
  for (size_t i = begin; i < end; ++i) {
    const Layer &layer = model.layers[i];
    addLayer(stage, layer);
    held += layer.held;
    has.embedding |= layer.kind == LayerKind::Embedding;
    has.mtp |= layer.kind == LayerKind::Mtp;
    has.head |= layer.kind == LayerKind::Head;
  }
  setState(stage, model, held, has);
  stage.description = describe(model, stage, has.embedding, has.head);
  return stage;
}

} // namespace

std::optional<StageGraph> partition(const Spec &spec, const Model &model,
                                    uint32_t stages, Diagnostics &diagnostics) {
  std::optional<std::vector<uint32_t>> counts =
      cutLayers(spec, model, stages, diagnostics);
  bool fits = checkRecompute(spec, stages, diagnostics);
  if (!checkOffload(spec, stages, diagnostics) || !fits || !counts)
    return std::nullopt;
  StageGraph graph;
  graph.stages.reserve(stages);
  size_t begin = 0;
  uint32_t counted = 0;
  for (Id stage = 0; stage < stages; ++stage) {
    size_t end = begin + (*counts)[stage];
    graph.stages.push_back(makeStage(spec, model, begin, end, counted,
                                     policyOf(spec, model, stage, begin, end)));
    graph.stages.back().offload = offloads(spec, stage);
    counted += graph.stages.back().layers;
    if (stage + 1 < stages)
      graph.edges.push_back(
          {stage, stage + 1, end == 0 ? 0 : model.layers[end - 1].output});
    begin = end;
  }
  tieEnds(model, graph.stages);
  return graph;
}

} // namespace sluice
