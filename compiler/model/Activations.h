//===- compiler/model/Activations.h - Bytes that a layer saves ------------===//
#ifndef SLUICE_COMPILER_MODEL_ACTIVATIONS_H
#define SLUICE_COMPILER_MODEL_ACTIVATIONS_H

#include "compiler/model/Shape.h"

namespace sluice {

/// Sets what a block saves per microbatch on one device, what of it W needs,
/// what recomputation starts from or makes again, its scratch, and what it
/// hands on. The formulas stand in Activations.cpp.
void setBlockBytes(Layer &layer, const Shape &shape, bool withExperts);
/// The same of the head, which makes `shape.mtp + 1` predictions a token.
void setHeadBytes(Layer &layer, const Shape &shape);
/// Bytes of a microbatch between two layers on one device.
Bytes boundaryBytes(const Shape &shape);

} // namespace sluice

#endif // SLUICE_COMPILER_MODEL_ACTIVATIONS_H
