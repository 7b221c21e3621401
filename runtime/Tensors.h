//===- runtime/Tensors.h - The tensors of a stage, by their names ---------===//
#ifndef SLUICE_RUNTIME_TENSORS_H
#define SLUICE_RUNTIME_TENSORS_H

#include "ir/Ops.h"
#include "ir/Status.h"
#include "runtime/sluice.h"

#include <vector>

namespace sluice::runtime {

/// Adds the tensors of a stage's `instance`. Failures are the module's, and
/// Fault::Environment.
Status addTensors(const sluice_module &module, void *instance, Id stage,
                  std::vector<sluice_tensor> &tensors);

} // namespace sluice::runtime

#endif // SLUICE_RUNTIME_TENSORS_H
