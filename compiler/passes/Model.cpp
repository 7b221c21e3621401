//===- Model.cpp - The passes `build-model` and `partition` ---------------===//
//
// build-model: needs a spec, gives its layers. partition: cuts them into
// stages. Both fail on what keys of the spec mean together, with their places.
//
//===----------------------------------------------------------------------===//
#include "compiler/passes/PassManager.h"

namespace sluice {

bool passes::BuildModel(Compilation &c) {
  c.model = buildModel(*c.spec, c.diagnostics);
  return c.model.has_value();
}

bool passes::PartitionModel(Compilation &c) {
  c.stages = partition(*c.spec, *c.model, c.diagnostics);
  return c.stages.has_value();
}

} // namespace sluice
