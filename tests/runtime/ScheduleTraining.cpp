//===- tests/runtime/ScheduleTraining.cpp - Two copies of the stages -----===//
//
// With two copies of a stage the gradients of its microbatches are summed half
// by half, so they differ from those of one rank, but only by rounding.
//
//===----------------------------------------------------------------------===//
#include "tests/runtime/ScheduleTraining.h"

#include "runtime/modules/gpt/Module.h"

#include "tests/Catch.h"
#include "tests/Repository.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <mutex>
#include <stdexcept>
#include <utility>
#include <vector>

using namespace sluice;
using namespace sluice::tests;

namespace {

constexpr uint64_t kSteps = 10;

/// A tensor on one rank around an optimizer step.
struct Copy {
  Id rank;
  std::vector<float> gradients; ///< before
  std::vector<float> weights;   ///< after
};

/// By step and name, in order of the rank.
using Tensors = std::map<std::pair<uint64_t, std::string>, std::vector<Copy>>;

struct Training {
  Tensors tensors;
  std::vector<double> losses;
};

std::vector<float> floatsAt(const void *data, uint64_t bytes) {
  std::vector<float> floats(bytes / sizeof(float));
  std::memcpy(floats.data(), data, floats.size() * sizeof(float));
  return floats;
}

/// A tied table has gradients by its use as output matrix, too; these go by
/// this name. They stand last, where both uses are in one stage.
constexpr const char *kTable = "embedding.token";
constexpr const char *kOutput = "embedding.token as output matrix";

/// Calls `visit(name, weights, gradients, bytes)`; gradients lie as weights do.
template <typename Visit>
void eachTensor(const SpyMoment &moment, Visit visit) {
  const auto *weights =
      static_cast<const char *>(moment.state->parameters.data);
  const auto *gradients =
      static_cast<const char *>(moment.state->gradients.data);
  for (uint32_t i = 0; i < moment.inner->tensor_count(moment.instance); ++i) {
    sluice_tensor tensor = {};
    sluice_error error = {};
    if (moment.inner->tensor(moment.instance, i, &tensor, &error) != 0)
      throw std::runtime_error(error.message);
    const bool isTable = std::strcmp(tensor.name, kTable) == 0;
    visit(isTable && moment.stage != 0 ? kOutput : tensor.name, tensor.data,
          gradients + (static_cast<const char *>(tensor.data) - weights),
          tensor.bytes);
    const uint64_t more =
        moment.state->gradients.bytes - moment.state->parameters.bytes;
    if (isTable && more != 0) {
      REQUIRE(more == tensor.bytes);
      visit(kOutput, tensor.data, gradients + moment.state->parameters.bytes,
            more);
    }
  }
}

Training train(const std::string &schedule, uint32_t ranks,
               uint32_t microbatches, bool tied) {
  const std::string spec =
      "sluice: 1\n"
      "model:\n"
      "  transformer: {layers: 5, hidden: 16, ffn: 32, heads: 2, vocab: 256, "
      "sequence: 12, tied_embeddings: " +
      std::string(tied ? "true" : "false") +
      ", dtype: fp32}\n"
      "pipeline: {ranks: " +
      std::to_string(ranks) +
      ", microbatches: " + std::to_string(microbatches) +
      ", microbatch_size: 2, schedule: " + schedule +
      "}\n"
      "run: {data: " +
      inRepository("LICENSE") + ", learning_rate: 0.01}\n";
  Training training;
  std::mutex mutex;
  SpyHooks hooks;
  hooks.before = [&](const SpyMoment &moment) {
    if (moment.function != SpyMoment::OptimizerStep)
      return;
    const std::lock_guard lock(mutex);
    eachTensor(moment, [&](const char *name, const void *, const void *sums,
                           uint64_t bytes) {
      training.tensors[{moment.step, name}].push_back(
          {moment.rank, floatsAt(sums, bytes), {}});
    });
  };
  hooks.after = [&](const SpyMoment &moment) {
    if (moment.function != SpyMoment::OptimizerStep)
      return;
    const std::lock_guard lock(mutex);
    eachTensor(moment, [&](const char *name, const void *weights, const void *,
                           uint64_t bytes) {
      for (Copy &copy : training.tensors[{moment.step, name}])
        if (copy.rank == moment.rank)
          copy.weights = floatsAt(weights, bytes);
    });
  };
  training.losses =
      runSpied(compileSpec(spec), sluice_gpt_module(), kSteps, hooks).losses;
  REQUIRE(training.losses.size() == kSteps);
  return training;
}

/// Bit for bit.
bool same(const std::vector<float> &a, const std::vector<float> &b) {
  return a.size() == b.size() &&
         std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

/// The largest difference, relative to the largest entry of `expected`.
double distance(const std::vector<float> &got,
                const std::vector<float> &expected) {
  REQUIRE(got.size() == expected.size());
  double largest = 0, apart = 0;
  bool finite = true; // max passes over what is not a number
  for (size_t i = 0; i < got.size(); ++i) {
    largest = std::max(largest, std::fabs(double(expected[i])));
    finite &= std::isfinite(got[i]);
    apart = std::max(apart, std::fabs(double(got[i]) - double(expected[i])));
  }
  REQUIRE(largest > 0);
  REQUIRE(finite);
  return apart / largest;
}

/// Both copies of every tensor are the same in every step. Of one microbatch
/// the second copy of a stage gets nothing, and there is none.
void checkCopies(const Tensors &tensors, uint32_t ranks,
                 uint32_t microbatches) {
  for (const auto &[key, copies] : tensors) {
    INFO("step " << key.first << ", " << key.second);
    REQUIRE(copies.size() == std::min(microbatches, 2u));
    if (copies.size() == 1)
      continue;
    CHECK(copies[0].rank + copies[1].rank == ranks - 1);
    CHECK(same(copies[0].gradients, copies[1].gradients));
    REQUIRE_FALSE(copies[0].weights.empty());
    CHECK(same(copies[0].weights, copies[1].weights));
  }
}

void checkTraining(const Training &got, const Training &one) {
  REQUIRE(got.tensors.size() == one.tensors.size());
  for (const auto &[key, copies] : one.tensors) {
    REQUIRE(copies.size() == 1);
    if (key.first != 0)
      continue;
    INFO(key.second);
    const auto found = got.tensors.find(key);
    REQUIRE(found != got.tensors.end());
    CHECK(distance(found->second[0].gradients, copies[0].gradients) <= 1e-5);
  }
  for (uint64_t step = 0; step < kSteps; ++step) {
    INFO("step " << step);
    CHECK(std::fabs(got.losses[step] - one.losses[step]) <= 1e-4);
  }
  CHECK(one.losses.back() < one.losses.front());
}

} // namespace

TEST_CASE("training: two copies of the stages learn what one rank does",
          "[training]") {
  const uint32_t microbatches = GENERATE(1u, 2u, 4u, 5u, 8u, 10u);
  const bool tied = GENERATE(false, true);
  const Training one = train("1f1b", 1, microbatches, tied);
  for (const char *schedule : {"dualpipe", "chimera"})
    for (const uint32_t ranks : {2u, 4u}) {
      const bool dual = std::strcmp(schedule, "dualpipe") == 0;
      if (dual && (microbatches % 2 != 0 || microbatches < 2 * ranks))
        continue; // refused
      INFO(schedule << ", " << ranks << " ranks, " << microbatches
                    << " microbatches");
      const Training two = train(schedule, ranks, microbatches, tied);
      checkCopies(two.tensors, ranks, microbatches);
      checkTraining(two, one);
    }
}
