//===- Model.cpp - The passes `build-model` and `partition` ---------------===//
//
// build-model: needs a spec, gives its layers. partition: cuts them into
// as many stages as the schedule has. Both fail on what keys of the spec mean
// together, with their places.
//
//===----------------------------------------------------------------------===//
#include "compiler/model/Transformer.h"
#include "compiler/passes/PassManager.h"

namespace sluice {

bool passes::BuildModel(Compilation &c) {
  c.model = buildModel(*c.spec, c.diagnostics);
  return c.model.has_value();
}

/// Takes from a stage what only training needs. What a transformer's forward
/// would save, it still writes on its way.
static void dropBackward(Stage &stage, bool isTransformer) {
  if (isTransformer)
    stage.bytes.workspace += stage.bytes.activation;
  stage.backward = false;
  stage.backwardInput = stage.backwardWeight = 0;
  stage.bytes.gradients = stage.bytes.optimizer = stage.bytes.norms = 0;
  stage.bytes.activation = stage.bytes.keptForWeight = 0;
  stage.tiedTo = kNone;
  stage.bytes.tied = 0;
}

/// Adds what the run section of a transformer asks for.
static void addRunBytes(const Spec &spec, std::vector<Stage> &stages) {
  for (Stage &stage : stages) {
    if (spec.run.gradientGroups > 1)
      stage.bytes.gradients *= 2; // of the group at hand, and of those before
    if (spec.run.clipNorm.given)
      stage.bytes.norms = normBytes(*spec.model.transformer);
  }
}

bool passes::PartitionModel(Compilation &c) {
  c.stages = partition(*c.spec, *c.model, c.choice->stages, c.diagnostics);
  if (!c.stages)
    return false;
  c.stages->replicas = c.model->replicas;
  if (c.spec->model.transformer)
    addRunBytes(*c.spec, c.stages->stages);
  if (!c.choice->trains)
    for (Stage &stage : c.stages->stages)
      dropBackward(stage, c.spec->model.transformer.has_value());
  return true;
}

} // namespace sluice
