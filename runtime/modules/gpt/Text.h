//===- runtime/modules/gpt/Text.h - The text that a model is trained on --===//
#ifndef SLUICE_RUNTIME_MODULES_GPT_TEXT_H
#define SLUICE_RUNTIME_MODULES_GPT_TEXT_H

#include "ir/Status.h"
#include "runtime/modules/gpt/Config.h"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace sluice::gpt {

/// At most so much of the file is used, from its start.
inline constexpr size_t kTextLimit = size_t(64) << 20;

/// A text of bytes, each a token, and the samples drawn from it.
class Text {
public:
  /// Reads the file config.data. A fault: no file given, not a regular file,
  /// unreadable, empty, shorter than sequence + 1, or a byte not below vocab.
  Status read(const Config &config);

  /// The sequence + 1 tokens of one row of a microbatch: its first `sequence`
  /// are the inputs, the same shifted by one the targets. Where it starts is a
  /// function of seed, step, microbatch and row only.
  const uint8_t *sample(const Config &config, uint64_t step,
                        uint32_t microbatch, uint32_t row) const;

private:
  std::vector<uint8_t> bytes;
};

/// The tokens of one microbatch.
struct Batch {
  const Config &config;
  const Text &text;
  uint64_t step;
  uint32_t microbatch;
  const uint8_t *row(uint32_t index) const {
    return text.sample(config, step, microbatch, index);
  }
};

} // namespace sluice::gpt

#endif // SLUICE_RUNTIME_MODULES_GPT_TEXT_H
