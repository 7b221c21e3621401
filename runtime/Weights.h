//===- runtime/Weights.h - Trained weights, in canonical order -----------===//
#ifndef SLUICE_RUNTIME_WEIGHTS_H
#define SLUICE_RUNTIME_WEIGHTS_H

#include "ir/AsideFile.h"
#include "ir/Status.h"
#include "runtime/sluice.h"

#include <cstdint>
#include <string>

namespace sluice::runtime {

/// Takes the tensors of all stages, in order of their position in the model,
/// each once. The first failure ends the visit.
class WeightsSink {
public:
  virtual ~WeightsSink() = default;
  virtual Status begin(uint64_t count) = 0;
  virtual Status tensor(const sluice_tensor &tensor) = 0;
  virtual Status end() = 0;
};

/// Writes them to a file, which has its name only when it is complete: the
/// magic "SLUICEWT", the version (4 bytes), the number of tensors (8); then for
/// each its name (4 bytes of length, bytes), its data (8 bytes of length,
/// bytes). Numbers are little-endian. Nothing in it depends on ranks, stages or
/// schedule: the same weights give the same bytes.
class WeightsFile final : public WeightsSink {
public:
  explicit WeightsFile(std::string filePath) : path(std::move(filePath)) {}
  Status begin(uint64_t count) override;
  Status tensor(const sluice_tensor &tensor) override;
  Status end() override;

private:
  Status number(uint64_t value, unsigned bytes);
  std::string path;
  AsideFile file;
};

} // namespace sluice::runtime

#endif // SLUICE_RUNTIME_WEIGHTS_H
