//===- runtime/modules/gpt/Module.h - The stage module `gpt` -------------===//
//
// A decoder-only transformer over bytes, here in fp32 on the CPU: token and
// learned position embedding; blocks of layer norm, causal attention, layer
// norm and an MLP with GELU (tanh form); final layer norm, output matrix
// without a bias (its own, or the table of tokens), cross entropy. Trained with
// AdamW (Kernels.h has its constants); the two-dimensional tensors, embeddings
// included, have weight decay.
//
// A stage's results are the same bit for bit wherever the model is cut and
// however its calls are spread over threads, as long as the microbatches of
// each kind of call come in the same order.
//
//===----------------------------------------------------------------------===//
#ifndef SLUICE_RUNTIME_MODULES_GPT_MODULE_H
#define SLUICE_RUNTIME_MODULES_GPT_MODULE_H

#include "runtime/sluice.h"

/// The module (runtime/sluice.h); dtype=fp32.
const sluice_module *sluice_gpt_module();

/// The same code in double precision (dtype=fp64), so that its gradients can be
/// checked against finite differences.
const sluice_module *sluice_gpt_double_module();

#endif // SLUICE_RUNTIME_MODULES_GPT_MODULE_H
