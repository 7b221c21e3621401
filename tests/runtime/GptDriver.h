//===- tests/runtime/GptDriver.h - Drives the gpt module by hand ---------===//
//
// What the runtime does, in the smallest form: stages with their memory, calls
// in a given order through the C interface.
//
//===----------------------------------------------------------------------===//
#ifndef SLUICE_TESTS_RUNTIME_GPTDRIVER_H
#define SLUICE_TESTS_RUNTIME_GPTDRIVER_H

#include "runtime/sluice.h"

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace sluice::test {

/// The model and its run; small by default.
struct GptShape {
  uint32_t hidden = 8, ffn = 12, heads = 2, vocab = 256;
  uint32_t sequence = 5, positions = 6, rows = 2, layers = 2;
  uint32_t microbatches = 2;
  double learningRate = 0.01;
  double clipNorm = 0; ///< 0: none
  uint64_t seed = 7;
  bool trained = true;
  bool tied = false; ///< embedding and output matrix
  std::string data = "/usr/share/common-licenses/GPL-3";
  std::string dtype = "fp32";
  uint64_t tokens() const { return uint64_t(sequence) * rows; }
  uint64_t tableBytes() const {
    return uint64_t(vocab) * hidden * (dtype == "fp64" ? 8 : 4);
  }
};

/// What a stage of it holds.
struct GptPart {
  uint32_t first, count;
  bool embedding, head;
};

/// Lines of a stage's description, by key.
std::map<std::string, std::string> gptKeys(const GptShape &shape,
                                           const GptPart &part);
std::string gptLines(const std::map<std::string, std::string> &keys);

/// Memory with the runtime's alignment, filled with a pattern of its own.
class AlignedBytes {
public:
  explicit AlignedBytes(uint64_t bytes = 0);
  sluice_buffer buffer() const { return {memory.get(), size}; }
  template <typename Real> Real *as() const {
    return reinterpret_cast<Real *>(memory.get());
  }

private:
  struct Free {
    void operator()(unsigned char *data) const;
  };
  std::unique_ptr<unsigned char, Free> memory;
  uint64_t size;
};

/// One stage with the memory of all its microbatches. Failures of the module
/// throw std::runtime_error with its message.
class GptStage {
public:
  GptStage(const sluice_module *module, const GptShape &shape,
           const GptPart &part, uint32_t index = 0, uint32_t stages = 1);
  ~GptStage();
  GptStage(const GptStage &) = delete;
  GptStage &operator=(const GptStage &) = delete;

  void beginStep(uint64_t step);
  /// `input` and `output` may be empty where the stage has none.
  void forward(uint64_t step, uint32_t microbatch, sluice_buffer input,
               sluice_buffer output);
  void backwardInput(uint64_t step, uint32_t microbatch,
                     sluice_buffer outputGradient, sluice_buffer inputGradient);
  void backwardWeight(uint64_t step, uint32_t microbatch);
  void normGradients(const sluice_buffer *tied = nullptr);
  void optimizerStep(uint64_t step, const sluice_buffer *tied = nullptr);
  /// NaN on a stage without a loss.
  double loss();
  std::vector<sluice_tensor> tensors();

  sluice_bytes bytes{};
  AlignedBytes parameters, gradients, optimizer, workspace, norms;

private:
  sluice_call call(uint64_t step, uint32_t microbatch) const;

  const sluice_module *module;
  void *instance = nullptr;
  bool hasInput, hasOutput;
  std::vector<AlignedBytes> saved, kept;
};

/// A model cut into stages, with boundary buffers for each microbatch.
class GptPipeline {
public:
  /// `cut`: layers of each stage; the first also has the embedding, the last
  /// the head.
  GptPipeline(const sluice_module *module, const GptShape &shape,
              const std::vector<uint32_t> &cut);

  void forward(uint64_t step, uint32_t microbatch);
  void backwardInput(uint64_t step, uint32_t microbatch);
  void backwardWeight(uint64_t step, uint32_t microbatch);
  void beginStep(uint64_t step);
  /// Norms of all stages' tensors, and their sums over the stages.
  void normGradients();
  /// With the norms before it, where the run clips.
  void optimizerStep(uint64_t step);
  double loss() { return stages.back()->loss(); }
  /// All forwards, then all backwards (fused), then the optimizer.
  void trainStep(uint64_t step);
  /// Bytes of each tensor, by its position in the model.
  std::map<uint64_t, std::string> weights();

  std::vector<std::unique_ptr<GptStage>> stages;

private:
  /// The table's gradients of the stage that `stage` is tied to; none without.
  sluice_buffer tiedOf(size_t stage) const;

  uint32_t microbatches;
  uint64_t tiedBytes;
  /// [stage][microbatch]: what leaves a stage, and its gradient.
  std::vector<std::vector<AlignedBytes>> outputs, outputGradients;
};

/// A file in the directory for temporary files, removed at the end.
class TemporaryFile {
public:
  explicit TemporaryFile(const std::string &content);
  ~TemporaryFile();
  TemporaryFile(const TemporaryFile &) = delete;
  TemporaryFile &operator=(const TemporaryFile &) = delete;
  std::string path;
};

/// Calls of operator new in this process so far.
uint64_t allocationCount();

} // namespace sluice::test

#endif // SLUICE_TESTS_RUNTIME_GPTDRIVER_H
