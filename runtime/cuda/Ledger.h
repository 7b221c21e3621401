//===- runtime/cuda/Ledger.h - Sizes that both ends must agree on ---------===//
#ifndef SLUICE_RUNTIME_CUDA_LEDGER_H
#define SLUICE_RUNTIME_CUDA_LEDGER_H

#include "ir/Units.h"

#include <mutex>
#include <optional>
#include <vector>

namespace sluice::runtime::cuda {

/// NCCL does not compare the sizes of a message's two ends, or of a sum's many:
/// the data would be wrong, or the job hang. Where all ends are in this process
/// they note their sizes here, before they enqueue.
class Ledger {
public:
  explicit Ledger(size_t ends) : sizes(ends), counts(ends, 0) {}

  /// An end notes up to so many sizes in a step.
  void reserve(size_t end, size_t perStep) {
    const std::lock_guard lock(mutex);
    sizes[end].resize(2 * perStep + 1); // one end may be a step ahead
  }

  struct Difference {
    size_t first, second; ///< ends, in order
    Bytes firstBytes, secondBytes;
  };
  /// Notes the next size of `end`, and compares it with those that others have
  /// noted in their turn.
  std::optional<Difference> note(size_t end, Bytes bytes) {
    const std::lock_guard lock(mutex);
    const uint64_t turn = counts[end]++;
    at(end, turn) = bytes;
    for (size_t other = 0; other < sizes.size(); ++other) {
      if (counts[other] <= turn || counts[other] - turn > sizes[other].size() ||
          at(other, turn) == bytes)
        continue;
      if (other < end)
        return Difference{other, end, at(other, turn), bytes};
      return Difference{end, other, bytes, at(other, turn)};
    }
    return std::nullopt;
  }

private:
  Bytes &at(size_t end, uint64_t turn) {
    return sizes[end][turn % sizes[end].size()];
  }

  std::mutex mutex;
  std::vector<std::vector<Bytes>> sizes; ///< per end, the last ones
  std::vector<uint64_t> counts;
};

} // namespace sluice::runtime::cuda

#endif // SLUICE_RUNTIME_CUDA_LEDGER_H
