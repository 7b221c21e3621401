//===- runtime/modules/gpt/Stage.h - A stage, whatever it computes with ---===//
#ifndef SLUICE_RUNTIME_MODULES_GPT_STAGE_H
#define SLUICE_RUNTIME_MODULES_GPT_STAGE_H

#include "ir/Status.h"
#include "runtime/sluice.h"

#include <cstdint>
#include <memory>

namespace sluice::gpt {

/// What the C interface calls; its functions say what these are for.
class Stage {
public:
  virtual ~Stage() = default;

  virtual sluice_bytes bytes() const = 0;
  virtual Status bind(const sluice_state &memory) = 0;
  virtual Status beginStep(uint64_t step) = 0;
  virtual Status forward(const sluice_call &call) = 0;
  /// What forward has not left, by the stage's policy.
  virtual Status recompute(const sluice_call &call) = 0;
  virtual Status backwardInput(const sluice_call &call) = 0;
  virtual Status backwardWeight(const sluice_call &call) = 0;
  /// Adds what another copy of the stage has summed; refuses too few bytes.
  virtual Status addGradients(const sluice_buffer &other, void *stream) = 0;
  /// Writes the norms of the stage's tensors; of a table that two stages hold,
  /// that with the embedding does.
  virtual Status normGradients(const sluice_buffer *tied, void *stream) = 0;
  /// `tied` is null where the stage is tied to no other.
  virtual Status optimizerStep(const sluice_buffer *tied, void *stream) = 0;
  /// Whether there is a loss; its mean over the step's microbatches so far.
  virtual bool loss(double &mean) const = 0;
  virtual uint64_t tensors() const = 0;
  virtual Status tensor(uint32_t index, sluice_tensor &result) = 0;
};

/// Makes a stage. A fault: what readConfig and Text::read refuse, byte counts
/// beyond 63 bits, what the primitives refuse.
using MakeStage = Status (*)(const sluice_stage &, std::unique_ptr<Stage> &);

/// `create` of a module whose stages `make` makes.
int createStage(MakeStage make, const sluice_stage *stage, void **instance,
                sluice_error *error);

/// The table of a module, whose `create` calls createStage.
sluice_module stageModule(const char *name,
                          int (*create)(const sluice_stage *, void **,
                                        sluice_error *));

} // namespace sluice::gpt

#endif // SLUICE_RUNTIME_MODULES_GPT_STAGE_H
