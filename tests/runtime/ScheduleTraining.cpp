//===- tests/runtime/ScheduleTraining.cpp - Two copies of the stages -----===//
//
// With two copies of a stage the gradients of its microbatches are summed half
// by half, so they differ from those of one rank, but only by rounding.
//
//===----------------------------------------------------------------------===//
#include "tests/runtime/ScheduleTraining.h"

#include "ir/verify/Verify.h"
#include "runtime/modules/gpt/Module.h"

#include "tests/Catch.h"
#include "tests/Repository.h"
#include "tests/ir/Mutation.h"

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

/// Makes an all-reduce of what the copies of a stage exchange and add.
void reduceCopies(Plan &plan) {
  std::map<std::pair<Id, Id>, Id> collectives; // by the two ranks
  for (Id r = 0; r < plan.ranks.size(); ++r) {
    RankPlan &rank = plan.ranks[r];
    rank.streams.push_back("all-reduce");
    const auto stream = static_cast<uint8_t>(rank.streams.size() - 1);
    std::map<Id, size_t> sends;     // per stage, its place in the list
    std::map<size_t, Id> additions; // the other way round
    testing::LooseList reduced;
    for (testing::LooseOp each : testing::loosen(rank)) {
      if (each.op.op == Op::SendGradients) {
        const Id peer = plan.channels[each.op.channel].destination;
        const auto known = collectives.try_emplace(
            std::minmax(r, peer), static_cast<Id>(plan.collectives.size()));
        if (known.second)
          plan.collectives.push_back(
              {static_cast<Id>(plan.channels.size() + plan.collectives.size()),
               {std::min(r, peer), std::max(r, peer)}});
        sends[each.op.stage] = each.origin;
        each.op.op = Op::AllReduceGradients;
        each.op.channel = known.first->second;
        each.op.stream = stream;
        each.operands[0].access = static_cast<uint32_t>(Access::Update);
      }
      if (each.op.op == Op::AddGradients)
        additions[each.origin] = each.op.stage;
      if (each.op.op == Op::AddGradients || each.op.op == Op::RecvGradients)
        continue;
      for (size_t &wait : each.waits)
        if (const auto added = additions.find(wait); added != additions.end())
          wait = sends.at(added->second);
      if (each.op.op == Op::OptimizerStep) // which may read those of a tie
        for (const Id stage :
             {each.op.stage, plan.stages[each.op.stage].tiedTo})
          if (const auto sent = sends.find(stage); sent != sends.end())
            each.waits.push_back(sent->second);
      reduced.push_back(each);
    }
    testing::tighten(reduced, rank);
  }
  const verify::Result result = verify::verifyPlan(plan);
  INFO((result.ok() ? "" : verify::describe(plan, result.errors[0])));
  REQUIRE(result.ok());
}

/// How two copies of a stage come to the sum of their gradients.
enum class Sum { Exchange, AllReduce };

Training train(const std::string &schedule, uint32_t ranks,
               uint32_t microbatches, bool tied, Sum sum = Sum::Exchange) {
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
  Plan plan = compileSpec(spec);
  if (sum == Sum::AllReduce)
    reduceCopies(plan);
  training.losses = runSpied(plan, sluice_gpt_module(), kSteps, hooks).losses;
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

TEST_CASE("training: an all-reduce leaves the bits of an exchange",
          "[training]") {
  const bool tied = GENERATE(false, true);
  const char *schedule = GENERATE("dualpipe", "chimera");
  INFO(schedule);
  const Training exchanged = train(schedule, 4, 8, tied);
  const Training reduced = train(schedule, 4, 8, tied, Sum::AllReduce);
  checkCopies(reduced.tensors, 4, 8);
  CHECK(reduced.losses == exchanged.losses);
  REQUIRE(reduced.tensors.size() == exchanged.tensors.size());
  for (const auto &[key, copies] : exchanged.tensors) {
    INFO("step " << key.first << ", " << key.second);
    const auto found = reduced.tensors.find(key);
    REQUIRE(found != reduced.tensors.end());
    CHECK(same(found->second[0].gradients, copies[0].gradients));
    CHECK(same(found->second[0].weights, copies[0].weights));
  }
}
