//===- runtime/modules/gpt/Config.h - What one stage of a GPT is ---------===//
#ifndef SLUICE_RUNTIME_MODULES_GPT_CONFIG_H
#define SLUICE_RUNTIME_MODULES_GPT_CONFIG_H

#include "ir/Status.h"
#include "runtime/sluice.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace sluice::gpt {

/// Dimensions of the model, the part of it that one stage holds, and what the
/// run section says. Valid as readConfig leaves it: all dimensions positive,
/// every matrix within the 31-bit sizes that the matrix library takes.
struct Config {
  uint32_t hidden = 0, ffn = 0, heads = 0, kvHeads = 0;
  uint32_t vocab = 0, sequence = 0, positions = 0;
  uint32_t microbatchSize = 0; ///< sequences in a microbatch
  uint32_t microbatches = 0;   ///< in a step
  bool trained = false;        ///< has a backward
  uint32_t recompute = 0;      ///< SLUICE_RECOMPUTE_…
  /// As in sluice_stage.
  uint32_t optimizerPart = 0, optimizerParts = 1, gradientParts = 1;
  bool gradientsPartitioned = false; ///< as in sluice_stage
  bool flashAttention = true;        ///< false: probabilities are saved
  uint32_t layers = 0;               ///< of the whole model
  uint32_t firstLayer = 0, stageLayers = 0;
  bool embedding = false, head = false;
  bool tied = false; ///< the table of tokens is the output matrix too
  std::string data;  ///< path of the text; empty if none was given
  /// Groups of a step's microbatches whose gradients are summed apart, and then
  /// in order.
  uint32_t gradientGroups = 1;
  /// Norm of the whole model's gradients at most; 0: they are not clipped.
  double clipNorm = 0;
  double learningRate = 1e-3;
  uint64_t seed = 1;

  size_t tokens() const { return size_t(sequence) * microbatchSize; }
  /// Microbatches of a group.
  uint32_t groupSize() const { return microbatches / gradientGroups; }
  size_t headSize() const { return hidden / heads; }
  /// Whether it has the table of tokens, and whether another stage has it too.
  bool hasTable() const { return embedding || (tied && head); }
  bool sharesTable() const { return tied && embedding != head; }
  bool isFull() const { return recompute == SLUICE_RECOMPUTE_FULL; }
  bool isSelective() const { return recompute == SLUICE_RECOMPUTE_SELECTIVE; }
  /// Parameters of the table.
  uint64_t table() const { return uint64_t(vocab) * hidden; }
};

/// Reads the lines `key=value` of the stage's description and of its run
/// section, and refuses by name what this module cannot compute: every fault in
/// one message. `dtype` is the only one accepted. Keys of the run section that
/// are no concern of the module are passed over; its defaults are the spec's.
Status readConfig(const sluice_stage &stage, std::string_view dtype,
                  Config &config);

/// What a stage needs, in elements (numbers of the module's type). With
/// T = sequence · microbatch_size, h = hidden, s = sequence:
///   block      kept T(8h + 2ffn), workspace T(4h + 2ffn) + 2s², saved (without
///              flash attention) T·heads·s
///   head       saved Th (the norm's input), kept T(h + vocab), workspace 2Th
///   embedding  nothing
/// Selective recomputation makes the probabilities again; the head keeps the
/// norm's input, T(2h + vocab). Full recomputation: checkpoint Th, but for the
/// embedding; the forward works in the workspace, T(8h + 2ffn) + s² and
/// T(2h + vocab) of it.
/// saved and kept add up over a stage, the workspace is the largest part's.
/// Sums that do not fit 64 bits stay at the largest value.
struct Needs {
  uint64_t parameters = 0;
  /// Of one sum: as many as parameters; where tied embedding and head are in
  /// one stage, those of the table twice: the head's stand last.
  uint64_t gradients = 0;
  uint64_t saved = 0, kept = 0, checkpoint = 0, workspace = 0;
  uint64_t input = 0, output = 0;
};
Needs needsOf(const Config &config);
/// Probabilities of the attention of a block that are saved.
uint64_t probabilitiesOf(const Config &config);

/// a·b and a+b, or the largest value where they overflow.
uint64_t saturatingProduct(uint64_t a, uint64_t b);
uint64_t saturatingSum(uint64_t a, uint64_t b);

} // namespace sluice::gpt

#endif // SLUICE_RUNTIME_MODULES_GPT_CONFIG_H
