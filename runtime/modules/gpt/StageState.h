//===- runtime/modules/gpt/StageState.h - One stage with its memory ------===//
#ifndef SLUICE_RUNTIME_MODULES_GPT_STAGESTATE_H
#define SLUICE_RUNTIME_MODULES_GPT_STAGESTATE_H

#include "ir/Status.h"
#include "runtime/modules/gpt/Block.h"
#include "runtime/modules/gpt/Config.h"
#include "runtime/modules/gpt/Ends.h"
#include "runtime/modules/gpt/Parameters.h"
#include "runtime/modules/gpt/Primitives.h"
#include "runtime/modules/gpt/Stage.h"
#include "runtime/modules/gpt/Text.h"
#include "runtime/sluice.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace sluice::gpt {

/// A stage of the model: embedding, blocks and head as far as it has them, in
/// the runtime's memory. Allocates nothing from bind's end on, but for copies
/// of tensors that only a device has. For float, double and BFloat16.
template <typename Real> class StageState final : public Stage {
public:
  using Gradient = GradientOf<Real>;

  static Status create(const sluice_stage &stage,
                       std::unique_ptr<Primitives<Real>> primitives,
                       std::unique_ptr<Stage> &result);

  sluice_bytes bytes() const override;
  Status bind(const sluice_state &memory) override;
  Status beginStep(uint64_t step) override;
  Status forward(const sluice_call &call) override;
  Status recompute(const sluice_call &call) override;
  Status backwardInput(const sluice_call &call) override;
  Status backwardWeight(const sluice_call &call) override;
  Status addGradients(const sluice_buffer &other, void *stream) override;
  Status normGradients(const sluice_buffer *tied, void *stream) override;
  Status optimizerStep(const sluice_buffer *tied, void *stream) override;
  bool loss(double &mean) const override { return math->loss(mean); }
  uint64_t tensors() const override { return table.size(); }
  Status tensor(uint32_t index, sluice_tensor &result) override;

private:
  StageState(Config configuration,
             std::unique_ptr<Primitives<Real>> primitives);

  /// The group whose gradients are being summed by the calls of one kind.
  struct Group {
    uint32_t number = 0;
    uint32_t done = 0; ///< microbatches of it; 0: none is begun
    bool first = true; ///< in the step
  };

  /// Other gradients of the table that are to be added to its first ones, null
  /// without any.
  Status tiedPart(const sluice_buffer *tied, const Gradient *&more) const;
  void start(void *stream);
  void clearSums();
  Status initialiseState();
  Status copyState();
  Status checkParts() const;
  Status takeParts(const sluice_state &memory);
  struct Range {
    size_t begin, size;
  };
  Range ownOf(const Tensor &t) const;

  // What of the state's and the call's buffers a call lacks.
  Status checkForward(const sluice_call &call) const;
  Status checkRecompute(const sluice_call &call) const;
  Status checkBackwardInput(const sluice_call &call) const;
  Status checkBackwardWeight(const sluice_call &call) const;
  Status checkKept(const sluice_call &call) const;
  Status checkSaved(const sluice_call &call) const;
  Status checkBound() const;
  Status checkGroup(const Group &group, const sluice_call &call) const;
  Status checkGroupsWhole() const;
  void endCall(Group &group, const sluice_call &call);
  void addSums(bool isByInput, bool isFirst);
  void addSum(size_t offset, size_t count, bool isFirst);
  /// Bytes of the gradients of all parts, and of what is kept of them.
  uint64_t wholeBytes() const {
    return sizeof(Gradient) * uint64_t(part) * config.gradientParts;
  }
  Status checkGradients(const sluice_call &call) const;
  void beginGradients(const sluice_call &call);
  void addPart();
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
  void fill(const sluice_call &call, bool counts) const;
  void passThrough(const sluice_call &call) const;
  Scratch<Real> scratch() const { return {workspace, needs.workspace}; }
  uint64_t optimizerBytes(uint64_t count) const;
  /// Where the optimizer stands in hostCopy, behind the parameters.
  uint64_t optimizerAt() const {
    constexpr uint64_t kAlignment = 16;
    return (needs.parameters * sizeof(Real) + kAlignment - 1) / kAlignment *
           kAlignment;
  }

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

  std::unique_ptr<Primitives<Real>> math;

  Real *parameters = nullptr, *workspace = nullptr;
  Gradient *gradients = nullptr;
  Gradient *sums = nullptr; ///< what the calls add to: `gradients`, or of
                            ///< groups those of the one at hand, or, where
                            ///< `gradients` are a part, those of the microbatch
  /// Of the parameters, those whose optimizer is here: from `partBegin` on, as
  /// many as `part`.
  size_t partBegin = 0, part = 0;
  /// Where parameters are of another type than gradients, the same in that;
  /// then mean and square, each as many as `part`.
  Gradient *optimizer = nullptr;
  double *norms = nullptr; ///< squared, by position of the tensor
  Group byInput, byWeight;
  bool cleared = false; ///< the gradients, in this step
  bool stepped = false; ///< a step has begun
  /// Parameters and optimizer as `tensor` gave them, where the host cannot
  /// reach the stage's own.
  std::unique_ptr<std::byte[]> hostCopy;
};

} // namespace sluice::gpt

#endif // SLUICE_RUNTIME_MODULES_GPT_STAGESTATE_H
