//===- compiler/model/Transformer.h - Transformers as layers --------------===//
#ifndef SLUICE_COMPILER_MODEL_TRANSFORMER_H
#define SLUICE_COMPILER_MODEL_TRANSFORMER_H

#include "compiler/model/Layer.h"

namespace sluice {

struct TransformerSpec;

/// Fills the layers of `model` (embedding, blocks, head), its bytes per
/// parameter and its description from `model.transformer`. Values that do not
/// fit are set so high that the check of totals refuses them. The formulas
/// stand in Transformer.cpp.
void addTransformerLayers(const Spec &spec, Model &model);

/// Bytes of the norms of all tensors (StageBytes::norms) of a block without
/// variants, as module gpt has it: 4 matrices with biases and 2 norms with
/// biases; 2 tensors before the first and 3 behind the last.
Bytes normBytes(const TransformerSpec &transformer);

} // namespace sluice

#endif // SLUICE_COMPILER_MODEL_TRANSFORMER_H
