#include "compiler/partition/Partition.h"
#include "compiler/partition/Cut.h"
#include "ir/ModuleKeys.h"

#include <algorithm>

namespace sluice {

namespace {

std::string number(uint64_t value) { return std::to_string(value); }

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
  stage.bytes.keptForWeight += layer.keptForWeight;
  stage.bytes.workspace = std::max(stage.bytes.workspace, layer.workspace);
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

/// The stage of the layers [begin, end), of which `counted` come before it; of
/// none, where a layout string has an empty stage.
Stage makeStage(const Spec &spec, const Model &model, size_t begin, size_t end,
                uint32_t counted) {
  Stage stage;
  stage.firstLayer = counted;
  stage.location =
      begin < end ? model.layers[begin].location : spec.pipeline.layout.where;
  for (size_t i = begin; i < end; ++i)
    addLayer(stage, model.layers[i]);
  bool embedding =
      begin < end && model.layers[begin].kind == LayerKind::Embedding;
  bool head = begin < end && model.layers[end - 1].kind == LayerKind::Head;
  setState(stage, model, tiedTable(spec), embedding, head);
  stage.description = describe(model, stage, embedding, head);
  return stage;
}

} // namespace

std::optional<StageGraph> partition(const Spec &spec, const Model &model,
                                    uint32_t stages, Diagnostics &diagnostics) {
  std::optional<std::vector<uint32_t>> counts =
      cutLayers(spec, model, stages, diagnostics);
  if (!counts)
    return std::nullopt;
  StageGraph graph;
  graph.stages.reserve(stages);
  size_t begin = 0;
  uint32_t counted = 0;
  for (Id stage = 0; stage < stages; ++stage) {
    size_t end = begin + (*counts)[stage];
    graph.stages.push_back(makeStage(spec, model, begin, end, counted));
    counted += graph.stages.back().layers;
    if (stage + 1 < stages)
      graph.edges.push_back(
          {stage, stage + 1, end == 0 ? 0 : model.layers[end - 1].output});
    begin = end;
  }
  tieEnds(spec, model, graph.stages);
  return graph;
}

} // namespace sluice
