//===- compiler/model/Transformer.h - Transformers as layers --------------===//
#ifndef SLUICE_COMPILER_MODEL_TRANSFORMER_H
#define SLUICE_COMPILER_MODEL_TRANSFORMER_H

#include "compiler/model/Layer.h"

namespace sluice {

/// Fills the layers of `model` (embedding, blocks, head), its bytes per
/// parameter and its description from `model.transformer`. Values that do not
/// fit are set so high that the check of totals refuses them. The formulas
/// stand in Transformer.cpp.
void addTransformerLayers(const Spec &spec, Model &model);

} // namespace sluice

#endif // SLUICE_COMPILER_MODEL_TRANSFORMER_H
