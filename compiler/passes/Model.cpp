//===- Model.cpp - The passes `build-model` and `partition` ---------------===//
//
// build-model: needs a spec, gives its layers. partition: cuts them into
// as many stages as the schedule has. Both fail on what keys of the spec mean
// together, with their places.
//
//===----------------------------------------------------------------------===//
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
  stage.bytes.gradients = stage.bytes.optimizer = 0;
  stage.bytes.activation = stage.bytes.keptForWeight = 0;
  stage.tiedTo = kNone;
  stage.bytes.tied = 0;
}

bool passes::PartitionModel(Compilation &c) {
  c.stages = partition(*c.spec, *c.model, c.choice->stages, c.diagnostics);
  if (!c.stages)
    return false;
  c.stages->replicas = c.model->replicas;
  if (c.spec->model.transformer && c.spec->run.gradientGroups > 1)
    for (Stage &stage : c.stages->stages)
      stage.bytes.gradients *= 2; // of the group at hand, and of those before
  if (!c.choice->trains)
    for (Stage &stage : c.stages->stages)
      dropBackward(stage, c.spec->model.transformer.has_value());
  return true;
}

} // namespace sluice
