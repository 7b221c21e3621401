//===- tests/cuda/CudaRuns.h - Plans and jobs over the double -------------===//
#ifndef SLUICE_TESTS_CUDA_CUDARUNS_H
#define SLUICE_TESTS_CUDA_CUDARUNS_H

#include "compiler/passes/PassManager.h"
#include "compiler/spec/Parser.h"
#include "runtime/Job.h"
#include "tests/Catch.h"
#include "tests/cuda/double/Double.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace sluice::tests {

/// The plan of `spec`; none if it is refused.
inline std::optional<Plan> tryCompile(const std::string &spec) {
  Diagnostics diagnostics;
  Compilation compilation(diagnostics);
  compilation.spec = parseSpec(spec, "job.yaml", {}, diagnostics);
  if (!compilation.spec || !runPipeline(fullPipeline(), compilation))
    return std::nullopt;
  return std::move(*compilation.plan);
}

inline runtime::JobOptions cudaJob(const sluice_module *module,
                                   uint64_t steps = 1) {
  runtime::JobOptions options;
  options.backend = "cuda";
  options.module = module;
  options.steps = steps;
  options.timeoutSeconds = 20;
  return options;
}

/// What the double must not have seen, and what must not be left.
inline void checkClean() {
  for (const cudadouble::Fault &fault : cudadouble::faults()) {
    INFO(fault.text);
    CHECK(fault.text.empty());
  }
  for (const auto &[kind, count] : cudadouble::objects()) {
    INFO(count << " " << kind << " are left");
    CHECK(count == 0);
  }
}

/// The bytes of all tensors, by name.
class KeptWeights final : public runtime::WeightsSink {
public:
  Status begin(uint64_t) override { return {}; }
  Status tensor(const sluice_tensor &tensor) override {
    const char *data = static_cast<const char *>(tensor.data);
    tensors.emplace_back(tensor.name, std::string(data, tensor.bytes));
    return {};
  }
  Status end() override { return {}; }

  std::vector<std::pair<std::string, std::string>> tensors;
};

} // namespace sluice::tests

#endif // SLUICE_TESTS_CUDA_CUDARUNS_H
