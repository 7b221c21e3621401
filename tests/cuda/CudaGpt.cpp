//===- tests/cuda/CudaGpt.cpp - The module gpt on devices -----------------===//
//
// The kernels' own sources and the calls of cublasLt, over the double: what
// they compute, in what order, and what happens where a call fails.
//
//===----------------------------------------------------------------------===//
#include "runtime/Checkpoint.h"
#include "runtime/modules/gpt/BFloat16.h"
#include "runtime/modules/gpt/Module.h"
#include "tests/Repository.h"
#include "tests/cuda/CudaRuns.h"

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <limits>
#include <map>
#include <mutex>
#include <regex>

#include <unistd.h>

using namespace sluice;
using namespace sluice::tests;

namespace {

/// What is not the same in all tests.
struct Job {
  std::string pipeline = "ranks: 1";
  std::string run; ///< more keys, each with a comma before it
  std::string dtype = "fp32";
  std::string model; ///< the same
  unsigned sequence = 12;
};

Plan planOf(const Job &job) {
  const bool counts = job.pipeline.find("microbatches") != std::string::npos;
  std::optional<Plan> plan = tryCompile(
      "sluice: 1\nmodel:\n  transformer: {layers: 4, hidden: 16, ffn: 32, "
      "heads: 2, vocab: 256, sequence: " +
      std::to_string(job.sequence) + ", dtype: " + job.dtype + job.model +
      "}\npipeline: {microbatch_size: 2, " +
      std::string(counts ? "" : "microbatches: 4, ") + job.pipeline +
      "}\ncluster: {host_link: {latency: 1}}\nrun: {data: " +
      inRepository("LICENSE") + ", learning_rate: 0.01" + job.run + "}\n");
  INFO(job.pipeline << job.model << job.run);
  REQUIRE(plan);
  return std::move(*plan);
}

const sluice_module *deviceModule() {
  const sluice_module *module = sluice_gpt_module();
  bool isOnDevice = false;
  REQUIRE(runtime::findBackend("cuda")->placeModule(module, isOnDevice).ok());
  REQUIRE(isOnDevice);
  return module;
}

runtime::JobOptions deviceJob(uint64_t steps) {
  runtime::JobOptions options = cudaJob(deviceModule(), steps);
  options.computesOnDevice = true;
  options.recordLastStep = false;
  return options;
}

struct Trained {
  std::vector<std::pair<std::string, std::string>> tensors;
  std::vector<double> losses;
};

Trained train(const Plan &plan, const runtime::JobOptions &options) {
  KeptWeights weights;
  runtime::JobResult result;
  const Status status = runtime::runJob(plan, options, result, &weights);
  INFO(status.message());
  REQUIRE(status.ok());
  REQUIRE_FALSE(weights.tensors.empty());
  return {std::move(weights.tensors), std::move(result.losses)};
}

/// Over a fresh double, which must find nothing wrong.
Trained trainOnDevice(const Plan &plan, const runtime::JobOptions &options,
                      uint64_t seed = 3) {
  cudadouble::Settings settings;
  settings.seed = seed;
  settings.failOnDeadlock = options.devices == 0;
  cudadouble::reset(settings);
  Trained trained = train(plan, options);
  checkClean();
  return trained;
}

//===----------------------------------------------------------------------===//
// Gradients
//===----------------------------------------------------------------------===//

/// A module that notes what the optimizer keeps of each tensor as it is asked
/// for. After one step the mean of a gradient is a tenth of it.
std::mutex notesMutex;
std::map<std::string, std::vector<float>> notedMeans;
const sluice_module *notedModule = nullptr;

int notingTensor(void *instance, uint32_t index, sluice_tensor *tensor,
                 sluice_error *error) {
  const int code = notedModule->tensor(instance, index, tensor, error);
  if (code != 0)
    return code;
  const sluice_buffer &mean = tensor->states[tensor->state_count - 2];
  std::vector<float> values(mean.bytes / sizeof(float));
  std::memcpy(values.data(), mean.data, mean.bytes);
  const std::lock_guard lock(notesMutex);
  notedMeans[tensor->name] = std::move(values);
  return code;
}

std::map<std::string, std::vector<float>>
firstGradients(const Plan &plan, runtime::JobOptions options) {
  notedModule = options.module;
  notedMeans.clear();
  sluice_module noting = *options.module;
  noting.tensor = notingTensor;
  options.module = &noting;
  (void)train(plan, options);
  for (auto &[name, values] : notedMeans)
    for (float &value : values)
      value *= 10;
  return notedMeans;
}

/// The largest difference of `a` and `b` as a part of b's largest entry.
double relativeDifference(const std::vector<float> &a,
                          const std::vector<float> &b) {
  REQUIRE(a.size() == b.size());
  double largest = 0, difference = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    largest = std::max(largest, std::abs(double(b[i])));
    difference = std::max(difference, std::abs(double(a[i]) - double(b[i])));
  }
  REQUIRE(largest > 0);
  return difference / largest;
}

} // namespace

TEST_CASE("gpt: gradients of the first step are those of the CPU") {
  const Job job = GENERATE(
      Job{}, Job{.pipeline = "ranks: 4, schedule: zb-h1"},
      Job{.model = ", tied_embeddings: true"},
      Job{.pipeline = "ranks: 2, recompute: full",
          .model = ", tied_embeddings: true",
          .sequence = 40}, // sums over rows in several chunks
      Job{.pipeline = "ranks: 2, recompute: selective",
          .model = ", flash_attention: false"},
      Job{.run = ", clip_norm: 0.5, gradient_groups: 2", .sequence = 40});
  const Plan plan = planOf(job);
  runtime::JobOptions onHost = cudaJob(sluice_gpt_module());
  onHost.backend = "host";
  const auto expected = firstGradients(plan, onHost);
  cudadouble::reset();
  const auto got = firstGradients(plan, deviceJob(1));
  checkClean();
  REQUIRE(got.size() == expected.size());
  for (const auto &[name, values] : expected) {
    INFO(job.pipeline << job.model << job.run << ": " << name);
    REQUIRE(got.count(name) == 1);
    CHECK(relativeDifference(got.at(name), values) < 1e-4);
  }
}

//===----------------------------------------------------------------------===//
// Schedules
//===----------------------------------------------------------------------===//

/// Each weight gradient is summed in order of microbatches, and no sum depends
/// on where the model is cut.
TEST_CASE("gpt: every schedule leaves the same weights on devices") {
  const std::string dtype = GENERATE("fp32", "bf16");
  const std::string run = ", clip_norm: 0.5";
  const Trained one =
      trainOnDevice(planOf({.run = run, .dtype = dtype}), deviceJob(3));
  for (const char *pipeline :
       {"ranks: 2, schedule: 1f1b", "ranks: 4, schedule: 1f1b",
        "ranks: 4, schedule: zb-h1", "ranks: 2, schedule: gpipe",
        "ranks: 2, schedule: zb-v",
        "ranks: 2, virtual_stages: 2, schedule: interleaved-1f1b",
        "ranks: 2, recompute: full",
        "ranks: 2, schedule: gpipe, offload: activations"}) {
    INFO(pipeline << ", " << dtype);
    for (const uint32_t devices : {0u, 1u}) {
      runtime::JobOptions options = deviceJob(3);
      options.devices = devices;
      const Trained got = trainOnDevice(
          planOf({.pipeline = pipeline, .run = run, .dtype = dtype}), options);
      CHECK(got.tensors == one.tensors);
      CHECK(got.losses == one.losses);
    }
  }
}

TEST_CASE("gpt: copies of stages and replicas on devices end up equal") {
  const char *pipeline =
      GENERATE("ranks: 2, schedule: dualpipe", "ranks: 2, data_parallel: 2");
  const std::string dtype = GENERATE("fp32", "bf16");
  const Plan plan = planOf({.pipeline = pipeline,
                            .run = ", clip_norm: 0.5",
                            .dtype = dtype,
                            .model = ", tied_embeddings: true"});
  INFO(pipeline << ", " << dtype);
  // Handing on the weights compares all copies of each tensor.
  const Trained first = trainOnDevice(plan, deviceJob(3), 3);
  const Trained second = trainOnDevice(plan, deviceJob(3), 8);
  CHECK(first.tensors == second.tensors);
  CHECK(first.losses.back() < first.losses.front());
}

TEST_CASE("gpt: a captured step on devices leaves the same weights") {
  const char *pipeline =
      GENERATE("ranks: 1", "ranks: 2, schedule: 1f1b",
               "ranks: 4, schedule: zb-h1", "ranks: 2, data_parallel: 2");
  const std::string dtype = GENERATE("fp32", "bf16");
  const Plan plan =
      planOf({.pipeline = pipeline, .run = ", clip_norm: 0.5", .dtype = dtype});
  INFO(pipeline << ", " << dtype);
  runtime::JobOptions options = deviceJob(5);
  const Trained expected = trainOnDevice(plan, options);
  const uint64_t launched = cudadouble::calls()["cudaLaunchKernel"];
  options.graphs = true;
  const Trained got = trainOnDevice(plan, options);
  CHECK(got.tensors == expected.tensors);
  CHECK(got.losses == expected.losses);
  // The module's launches of one step of five.
  CHECK(cudadouble::calls()["cudaLaunchKernel"] * 5 == launched);
  CHECK(cudadouble::calls()["cudaGraphLaunch"] ==
        5 * plan.ranks.size() * plan.replicas);
}

//===----------------------------------------------------------------------===//
// Types
//===----------------------------------------------------------------------===//

TEST_CASE("gpt: 16-bit numbers are the nearest, of two the even one") {
  using gpt::BFloat16;
  const auto rounded = [](float value) { return float(BFloat16(value)); };
  constexpr float kStep = 0x1p-7f; // between numbers of 8 bits from 1 to 2
  CHECK(rounded(1) == 1);
  CHECK(rounded(-3.5f) == -3.5f);
  CHECK(rounded(1 + kStep) == 1 + kStep);
  CHECK(rounded(1 + 0.5f * kStep) == 1);             // a tie: 1 is even
  CHECK(rounded(1 + 1.5f * kStep) == 1 + 2 * kStep); // a tie, up
  CHECK(rounded(1 + 0.51f * kStep) == 1 + kStep);
  CHECK(rounded(-1 - 0.49f * kStep) == -1);
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  CHECK(rounded(std::numeric_limits<float>::max()) == kInfinity);
  CHECK(rounded(-kInfinity) == -kInfinity);
  CHECK(std::isnan(rounded(std::numeric_limits<float>::quiet_NaN())));
  CHECK(std::signbit(rounded(-0.0f)));
}

/// What 16-bit numbers may change of a loss. A rounding has a relative error of
/// at most 2^-9. The residual stream, of which the logits are made, is rounded
/// twice a block and once as it begins, then the norm's output and the logits
/// are: n = 2·4 + 3. Independent errors add up to √n 2^-9 of a logit's size,
/// and a loss changes by at most twice what its logits do. No logit is larger
/// than 8 here: e^8 is 12 times the vocabulary, so that a loss of a bit or more
/// has smaller ones.
TEST_CASE("gpt: 16-bit training follows the losses of 32 bits") {
  constexpr uint64_t kSteps = 40;
  const double bound = 2 * std::sqrt(2 * 4 + 3.0) * 0x1p-9 * 8;
  const Trained exact = trainOnDevice(planOf({}), deviceJob(kSteps));
  const Trained rounded =
      trainOnDevice(planOf({.dtype = "bf16"}), deviceJob(kSteps));
  REQUIRE(exact.losses.size() == kSteps);
  REQUIRE(rounded.losses.size() == kSteps);
  double most = 0;
  for (size_t i = 0; i < kSteps; ++i)
    most = std::max(most, std::abs(exact.losses[i] - rounded.losses[i]));
  INFO("at most " << most << ", from " << exact.losses.front() << " to "
                  << exact.losses.back());
  CHECK(most < bound);
  CHECK(most > 0);
  CHECK(exact.losses.back() < exact.losses.front() - 1.5);
}

TEST_CASE("gpt: losses in 32 bits are those of the CPU") {
  const Plan plan = planOf({.pipeline = "ranks: 2"});
  runtime::JobOptions onHost = cudaJob(sluice_gpt_module(), 5);
  onHost.backend = "host";
  const Trained expected = train(plan, onHost);
  const Trained got = trainOnDevice(plan, deviceJob(5));
  REQUIRE(got.losses.size() == expected.losses.size());
  for (size_t i = 0; i < got.losses.size(); ++i)
    CHECK(std::abs(got.losses[i] - expected.losses[i]) < 1e-4);
}

TEST_CASE("gpt: another type is refused by name") {
  cudadouble::reset();
  runtime::JobResult result;
  const Status status =
      runtime::runJob(planOf({.dtype = "fp16"}), deviceJob(1), result);
  CHECK(status.fault() == Fault::Input);
  INFO(status.message());
  CHECK(status.message().find("dtype is 'fp16', this module computes only "
                              "'fp32'") != std::string::npos);
  checkClean();
}

//===----------------------------------------------------------------------===//
// Checkpoints
//===----------------------------------------------------------------------===//

TEST_CASE("gpt: a device goes on from a checkpoint as if never stopped") {
  const std::string dtype = GENERATE("fp32", "bf16");
  const Plan plan = planOf({.pipeline = "ranks: 2", .dtype = dtype});
  const Trained expected = trainOnDevice(plan, deviceJob(4));
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() /
      ("sluice-cuda-gpt-" + dtype + std::to_string(::getpid()));
  std::filesystem::remove_all(folder);
  runtime::JobOptions options = deviceJob(2);
  options.checkpointDirectory = folder.string();
  (void)trainOnDevice(plan, options);
  options.steps = 4;
  std::vector<std::string> skipped;
  REQUIRE(
      runtime::findCheckpoint(folder.string(), options.resume, skipped).ok());
  REQUIRE(options.resume);
  const Trained got =
      trainOnDevice(planOf({.pipeline = "ranks: 4", .dtype = dtype}), options);
  std::filesystem::remove_all(folder);
  CHECK(got.tensors == expected.tensors);
}

//===----------------------------------------------------------------------===//
// Failures
//===----------------------------------------------------------------------===//

/// Whatever call of a library fails, the job says so and gives back the rest.
TEST_CASE("gpt: every call of the module fails once") {
  const Plan plan = planOf(
      {.pipeline = "ranks: 2, microbatches: 2", .run = ", clip_norm: 1"});
  cudadouble::reset();
  (void)train(plan, deviceJob(1));
  checkClean();
  const std::map<std::string, uint64_t> calls = cudadouble::calls();
  const char *kCalls[] = {"cublasLtCreate",
                          "cublasLtMatmulDescInit",
                          "cublasLtMatmulDescSetAttribute",
                          "cublasLtMatrixLayoutInit",
                          "cublasLtMatrixLayoutSetAttribute",
                          "cublasLtMatmulPreferenceInit",
                          "cublasLtMatmulPreferenceSetAttribute",
                          "cublasLtMatmulAlgoGetHeuristic",
                          "cublasLtMatmul",
                          "cudaLaunchKernel",
                          "cudaMemsetAsync",
                          "cudaMemcpyAsync",
                          "cudaGetDevice",
                          "cudaStreamSynchronize"};
  for (const std::string call : kCalls) {
    REQUIRE(calls.count(call) == 1);
    const uint64_t count = calls.at(call);
    for (uint64_t number = 1; number <= count;
         number += std::max<uint64_t>(1, count / 6)) {
      INFO(call << ", number " << number << " of " << count);
      cudadouble::reset();
      cudadouble::failCall(call, number);
      KeptWeights weights;
      runtime::JobResult result;
      const Status status =
          runtime::runJob(plan, deviceJob(1), result, &weights);
      INFO(status.message());
      CHECK(status.fault() == Fault::Environment);
      CHECK(status.message().find(call + ": ") != std::string::npos);
      CHECK(cudadouble::objects().empty());
      CHECK(cudadouble::faults(cudadouble::Fault::Kind::Misuse).empty());
      CHECK(cudadouble::faults(cudadouble::Fault::Kind::Race).empty());
    }
  }
}

TEST_CASE("gpt: what fails in a step is told with operation and line") {
  const Plan plan = planOf({.pipeline = "ranks: 2, schedule: zb-h1"});
  const bool isCaptured = GENERATE(false, true);
  for (const char *call : {"cublasLtMatmul", "cublasLtMatmulAlgoGetHeuristic",
                           "cublasLtMatmulDescSetAttribute"}) {
    cudadouble::reset();
    cudadouble::failCall(call, 5);
    runtime::JobOptions options = deviceJob(1);
    options.graphs = isCaptured;
    runtime::JobResult result;
    const Status status = runtime::runJob(plan, options, result);
    CHECK(cudadouble::objects().empty());
    CHECK(cudadouble::faults(cudadouble::Fault::Kind::Misuse).empty());
    INFO(status.message());
    CHECK(std::regex_match(
        status.message(),
        std::regex("rank [01] failed at [01][FIW][0-3] \\(job.yaml:\\d+\\) of "
                   "step 0: " +
                   std::string(call) + ": an internal operation failed")));
  }
}
