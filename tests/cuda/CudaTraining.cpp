//===- tests/cuda/CudaTraining.cpp - Weights over the double --------------===//
//
// The module computes on the host, in host functions of the streams, so its
// weights must have the bits of a run on threads.
//
//===----------------------------------------------------------------------===//
#include "runtime/modules/gpt/Module.h"
#include "tests/Repository.h"
#include "tests/cuda/CudaRuns.h"

using namespace sluice;
using namespace sluice::tests;

static std::string gptSpec(const std::string &pipeline,
                           const std::string &run) {
  const bool counts = pipeline.find("microbatches") != std::string::npos;
  return "sluice: 1\nmodel:\n  transformer: {layers: 4, hidden: 16, ffn: 32, "
         "heads: 2, vocab: 256, sequence: 12, dtype: fp32, tied_embeddings: "
         "true}\npipeline: {microbatch_size: 2, " +
         std::string(counts ? "" : "microbatches: 4, ") + pipeline +
         "}\ncluster: {host_link: {latency: 1}}\nrun: {data: " +
         inRepository("LICENSE") + ", learning_rate: 0.01" + run + "}\n";
}

static KeptWeights train(const Plan &plan, runtime::JobOptions options) {
  KeptWeights weights;
  runtime::JobResult result;
  const Status status = runtime::runJob(plan, options, result, &weights);
  INFO(status.message());
  REQUIRE(status.ok());
  REQUIRE(result.losses.size() == options.steps);
  return weights;
}

TEST_CASE("training: the weights are those of threads, bit for bit") {
  const char *pipeline = GENERATE(
      "ranks: 2, schedule: 1f1b", "ranks: 4, schedule: zb-h1",
      "ranks: 2, virtual_stages: 2, schedule: interleaved-1f1b",
      "ranks: 2, schedule: dualpipe", "ranks: 2, data_parallel: 3",
      "ranks: 2, data_parallel: 3, zero: 1",
      "ranks: 2, data_parallel: 3, zero: 2",
      "ranks: 2, microbatches: 8, schedule: gpipe, offload: activations");
  const uint32_t devices = GENERATE(0u, 1u);
  const std::string clip = GENERATE("", ", clip_norm: 0.5");
  std::optional<Plan> plan = tryCompile(gptSpec(pipeline, clip));
  INFO(pipeline << clip << ", " << devices << " devices");
  REQUIRE(plan);
  runtime::JobOptions options = cudaJob(sluice_gpt_module(), 6);
  options.devices = devices;
  options.backend = "host";
  const KeptWeights expected = train(*plan, options);
  cudadouble::Settings settings;
  settings.seed = 5;
  settings.failOnDeadlock = devices == 0;
  cudadouble::reset(settings);
  options.backend = "cuda";
  const KeptWeights got = train(*plan, options);
  CHECK_FALSE(expected.tensors.empty());
  CHECK(got.tensors == expected.tensors);
  checkClean();
}

TEST_CASE("training: a step that is captured and repeated leaves the same") {
  const char *pipeline = GENERATE(
      "ranks: 2, schedule: 1f1b", "ranks: 4, schedule: zb-h1",
      "ranks: 2, schedule: dualpipe", "ranks: 2, data_parallel: 3",
      "ranks: 2, data_parallel: 3, zero: 1",
      "ranks: 2, data_parallel: 3, zero: 2",
      "ranks: 2, microbatches: 8, schedule: gpipe, offload: activations");
  const std::string clip = GENERATE("", ", clip_norm: 0.5");
  const bool recorded = GENERATE(false, true);
  std::optional<Plan> plan = tryCompile(gptSpec(pipeline, clip));
  INFO(pipeline << clip);
  REQUIRE(plan);
  runtime::JobOptions options = cudaJob(sluice_gpt_module(), 6);
  options.recordLastStep = recorded;
  cudadouble::Settings settings;
  settings.seed = 11;
  settings.failOnDeadlock = true;
  cudadouble::reset(settings);
  const KeptWeights expected = train(*plan, options);
  const uint64_t ranks = plan->ranks.size() * plan->replicas;
  const uint64_t functions = cudadouble::calls()["cudaLaunchHostFunc"] / 6;
  cudadouble::reset(settings);
  options.graphs = true;
  const KeptWeights got = train(*plan, options);
  CHECK_FALSE(expected.tensors.empty());
  CHECK(got.tensors == expected.tensors);
  checkClean();
  // One launch a step; a step whose times are recorded is not in the graph.
  const uint64_t launched = recorded ? 5 : 6;
  CHECK(cudadouble::calls()["cudaGraphLaunch"] == launched * ranks);
  CHECK(cudadouble::calls()["cudaLaunchHostFunc"] ==
        functions * (recorded ? 2 : 1));
}

TEST_CASE("training: ranks that share a GPU are not captured") {
  std::optional<Plan> plan = tryCompile(gptSpec("ranks: 2", ""));
  REQUIRE(plan);
  cudadouble::reset();
  runtime::JobOptions options = cudaJob(sluice_gpt_module());
  options.graphs = true;
  options.devices = 1;
  runtime::JobResult result;
  const Status status = runtime::runJob(*plan, options, result);
  CHECK(status.fault() == Fault::Usage);
  CHECK(status.message() == "--graph: ranks that share a GPU cannot be "
                            "captured; it takes one for each of the 2 ranks");
  checkClean();
}
