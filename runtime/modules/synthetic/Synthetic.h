//===- runtime/modules/synthetic/Synthetic.h - Spends given times --------===//
//
// A stage module without a model: each call takes the time that the plan gives
// it (none where the plan counts abstract units) and proves that memory and
// messages are right: it fills whatever it writes with a pattern that depends
// on step, kind, producing and consuming stage, microbatch and position, and
// checks that whatever it reads holds what its producer wrote; in a buffer over
// 16 KiB only 64 lines, so that its size takes no time. Parameters,
// gradients and optimizer state hold a pattern for the whole run, which the
// optimizer step checks. It accepts any sizes.
//
//===----------------------------------------------------------------------===//
#ifndef SLUICE_RUNTIME_MODULES_SYNTHETIC_SYNTHETIC_H
#define SLUICE_RUNTIME_MODULES_SYNTHETIC_SYNTHETIC_H

#include "runtime/sluice.h"

const sluice_module *sluice_synthetic_module();

#endif // SLUICE_RUNTIME_MODULES_SYNTHETIC_SYNTHETIC_H
