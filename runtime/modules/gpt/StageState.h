//===- runtime/modules/gpt/StageState.h - One stage with its memory ------===//
#ifndef SLUICE_RUNTIME_MODULES_GPT_STAGESTATE_H
#define SLUICE_RUNTIME_MODULES_GPT_STAGESTATE_H

#include "ir/Status.h"
#include "runtime/modules/gpt/Block.h"
#include "runtime/modules/gpt/Config.h"
#include "runtime/modules/gpt/Ends.h"
#include "runtime/modules/gpt/Kernels.h"
#include "runtime/modules/gpt/Parameters.h"
#include "runtime/modules/gpt/Text.h"
#include "runtime/sluice.h"

#include <cstdint>
#include <vector>

namespace sluice::gpt {

/// A stage of the model: embedding, blocks and head as far as it has them, in
/// the runtime's memory. Allocates nothing from bind's end on.
template <typename Real> class StageState {
public:
  /// Reads description, run section and data. A fault: what readConfig and
  /// Text::read refuse, byte counts beyond 63 bits, wrong matrix products.
  static Status create(const sluice_stage &stage, StageState *&result);

  sluice_bytes bytes() const;
  Status bind(const sluice_state &memory);
  void beginStep();
  void forward(const sluice_call &call);
  /// What forward has not left, by the stage's policy.
  void recompute(const sluice_call &call);
  void backwardInput(const sluice_call &call);
  void backwardWeight(const sluice_call &call);
  /// Adds what another copy of the stage has summed; refuses too few bytes.
  Status addGradients(const sluice_buffer &other);
  /// Writes the norms of the stage's tensors; of a table that two stages hold,
  /// that with the embedding does.
  Status normGradients(const sluice_buffer *tied);
  /// `tied` is null where the stage is tied to no other.
  Status optimizerStep(uint64_t step, const sluice_buffer *tied);
  /// Whether there is a loss; its mean over the step's microbatches so far.
  bool loss(double &mean) const;
  uint64_t tensors() const { return table.size(); }
  Status tensor(uint32_t index, sluice_tensor &result);
  /// What of the state's and the call's buffers a call lacks.
  Status checkForward(const sluice_call &call) const;
  Status checkRecompute(const sluice_call &call) const;
  Status checkBackwardInput(const sluice_call &call) const;
  Status checkBackwardWeight(const sluice_call &call) const;

private:
  explicit StageState(Config configuration);

  /// The group whose gradients are being summed by the calls of one kind.
  struct Group {
    uint32_t number = 0;
    uint32_t done = 0; ///< microbatches of it; 0: none is begun
    bool first = true; ///< in the step
  };

  /// Other gradients of the table that are to be added to its first ones, null
  /// without any.
  Status tiedPart(const sluice_buffer *tied, const Real *&more) const;
  double clippedBy() const;
  Status checkParts() const;
  Status takeParts(const sluice_state &memory);
  void stepTensor(const Tensor &t, const AdamW &adamW, const Real *more);

  Status checkKept(const sluice_call &call) const;
  Status checkSaved(const sluice_call &call) const;
  Status checkBound() const;
  Status checkGroup(const Group &group, const sluice_call &call) const;
  Status checkGroupsWhole() const;
  void endCall(Group &group, const sluice_call &call);
  void addSums(bool isByInput, bool isFirst);
  void addSum(size_t offset, size_t count, bool isFirst);
  sluice_call withScratch(sluice_call call) const;
  Batch batch(const sluice_call &call) const {
    return {config, text, call.step, call.microbatch};
  }
  Embedding<Real> embedding() const;
  Block<Real> block(size_t index, Real *kept, Real *probabilities) const;
  Block<Real> block(size_t index, const sluice_call &call) const;
  Head<Real> head(Real *kept) const;
  Head<Real> head(const sluice_call &call) const;
  Real *headInput(const sluice_call &call) const;
  /// Where the input of block `index` goes, past the last what follows it; null
  /// where nobody wants that.
  Real *inputOf(size_t index, const sluice_call &call) const;
  void takeInput(const sluice_call &call, Real *place) const;
  double fill(const sluice_call &call) const;
  double passThrough(const sluice_call &call) const;

  /// Where the gradients of the table by its use as output matrix start.
  size_t outputGradients() const {
    return config.embedding ? needs.parameters : 0;
  }

  Config config;
  Needs needs;
  Text text;
  std::vector<Tensor> table;
  Offsets<kEmbeddingTensors> embeddingLayout;
  BlockLayout blockLayout;
  HeadLayout headLayout;
  /// Where the first block and the head start among the parameters.
  size_t firstBlock, headStart;

  Real *parameters = nullptr, *gradients = nullptr;
  Real *sums = nullptr; ///< what the calls add to: `gradients`, or of groups
                        ///< those of the one at hand
  Group byInput, byWeight;
  /// Of the parameters, those whose optimizer is here: from `partBegin` on, as
  /// many as `part`.
  size_t partBegin = 0, part = 0;
  Real *optimizer = nullptr, *workspace = nullptr;
  double *norms = nullptr; ///< squared, by position of the tensor
  double lossSum = 0;
  uint64_t lossCount = 0;
};

} // namespace sluice::gpt

#endif // SLUICE_RUNTIME_MODULES_GPT_STAGESTATE_H
