//===- tests/runtime/GptTraining.cpp - Training by hand -------------------===//
#include "runtime/modules/gpt/Module.h"
#include "tests/Catch.h"
#include "tests/runtime/GptDriver.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <fstream>
#include <thread>

using namespace sluice::test;

namespace {

using Weights = std::map<uint64_t, std::string>;

GptShape trainingShape() {
  GptShape shape;
  shape.hidden = 24;
  shape.ffn = 40;
  shape.heads = 3;
  shape.sequence = 17;
  shape.positions = 20;
  shape.layers = 4;
  shape.microbatches = 3;
  return shape;
}

constexpr uint64_t kSteps = 3;

Weights trained(const GptShape &shape, const std::vector<uint32_t> &cut) {
  GptPipeline pipeline(sluice_gpt_module(), shape, cut);
  for (uint64_t step = 0; step < kSteps; ++step)
    pipeline.trainStep(step);
  return pipeline.weights();
}

/// Steps in other orders: one microbatch after the other, or all input
/// gradients before all weight gradients.
Weights trainedInOrder(const GptShape &shape, bool split) {
  GptPipeline pipeline(sluice_gpt_module(), shape, {2, 2});
  for (uint64_t step = 0; step < kSteps; ++step) {
    pipeline.beginStep(step);
    for (uint32_t k = 0; k < shape.microbatches; ++k) {
      pipeline.forward(step, k);
      pipeline.backwardInput(step, k);
      if (!split)
        pipeline.backwardWeight(step, k);
    }
    for (uint32_t k = 0; split && k < shape.microbatches; ++k)
      pipeline.backwardWeight(step, k);
    pipeline.optimizerStep(step);
  }
  return pipeline.weights();
}

std::string bytesOf(const AlignedBytes &memory) {
  return std::string(memory.as<char>(), memory.buffer().bytes);
}

/// Entropy of a file's bytes, each by itself, in nats.
double byteEntropy(const std::string &path) {
  std::ifstream file(path, std::ios::binary);
  std::array<double, 256> counts{};
  double total = 0, entropy = 0;
  for (char byte; file.get(byte); ++total)
    ++counts[static_cast<unsigned char>(byte)];
  for (double count : counts)
    if (count > 0)
      entropy -= count / total * std::log(count / total);
  return entropy;
}

} // namespace

TEST_CASE("gpt: the weights are the same bit for bit for every cut") {
  GptShape shape = trainingShape();
  shape.tied = GENERATE(false, true);
  const Weights one = trained(shape, {4});
  CHECK(one.size() == 2 + 4 * 12 + (shape.tied ? 2 : 3));
  GptPipeline untrained(sluice_gpt_module(), shape, {4});
  CHECK(one != untrained.weights());
  CHECK(one == trained(shape, {2, 2}));
  CHECK(one == trained(shape, {1, 3}));
  CHECK(one == trained(shape, {2, 1, 1}));
  CHECK(one == trained(shape, {1, 1, 1, 1}));
  // Embedding and head alone, and a stage that only hands on.
  CHECK(one == trained(shape, {0, 4, 0}));
  CHECK(one == trained(shape, {2, 0, 2}));
}

TEST_CASE("gpt: the weights are the same bit for bit for every order of calls "
          "that keeps that of the microbatches") {
  const GptShape shape = trainingShape();
  const Weights one = trained(shape, {4});
  CHECK(one == trainedInOrder(shape, false));
  CHECK(one == trainedInOrder(shape, true));
}

TEST_CASE("gpt: stages on other threads train the same weights") {
  const GptShape shape = trainingShape();
  const Weights one = trained(shape, {4});
  std::vector<Weights> results(2);
  std::vector<std::thread> threads;
  threads.reserve(results.size());
  for (Weights &result : results)
    threads.emplace_back([&] { result = trained(shape, {1, 2, 1}); });
  for (std::thread &thread : threads)
    thread.join();
  CHECK(one == results[0]);
  CHECK(one == results[1]);
}

TEST_CASE("gpt: another seed gives other weights and other samples") {
  GptShape shape = trainingShape();
  GptPipeline first(sluice_gpt_module(), shape, {4});
  shape.seed = 8;
  GptPipeline second(sluice_gpt_module(), shape, {4});
  CHECK(first.weights() != second.weights());
}

TEST_CASE("gpt: weight gradients of two microbatches add up") {
  GptShape shape = trainingShape();
  shape.microbatches = 2;
  GptStage stage(sluice_gpt_module(), shape, {0, 4, true, true});
  auto gradients = [&](const std::vector<uint32_t> &microbatches) {
    stage.beginStep(0);
    for (uint32_t k : microbatches) {
      stage.forward(0, k, {}, {});
      stage.backwardInput(0, k, {}, {});
      stage.backwardWeight(0, k);
    }
    const float *data = stage.gradients.as<float>();
    return std::vector<float>(data,
                              data + stage.bytes.gradients / sizeof(float));
  };
  auto first = gradients({0}), second = gradients({1}),
       both = gradients({0, 1});
  float largest = 0, error = 0, difference = 0;
  for (size_t i = 0; i < both.size(); ++i) {
    largest = std::max(largest, std::abs(both[i]));
    error = std::max(error, std::abs(both[i] - (first[i] + second[i])));
    difference = std::max(difference, std::abs(first[i] - second[i]));
  }
  CHECK(difference > 0.1f * largest);
  CHECK(error < 1e-5f * largest);
}

TEST_CASE("gpt: backward_weight changes gradients only, and reads kept only") {
  const GptShape shape = trainingShape();
  GptStage stage(sluice_gpt_module(), shape, {0, 4, true, true});
  stage.beginStep(0);
  stage.forward(0, 0, {}, {});
  stage.backwardInput(0, 0, {}, {});
  const std::string parameters = bytesOf(stage.parameters);
  std::memset(stage.workspace.as<char>(), 0xff, stage.bytes.workspace);
  const std::string workspace = bytesOf(stage.workspace);
  stage.backwardWeight(0, 0);
  CHECK(parameters == bytesOf(stage.parameters));
  CHECK(workspace == bytesOf(stage.workspace));
  const float *gradients = stage.gradients.as<float>();
  for (size_t i = 0; i < stage.bytes.gradients / sizeof(float); ++i)
    REQUIRE(std::isfinite(gradients[i]));
}

TEST_CASE("gpt: only tensors of two dimensions decay") {
  GptShape shape = trainingShape();
  shape.learningRate = 0.5;
  GptStage stage(sluice_gpt_module(), shape, {0, 4, true, true});
  std::map<std::string, std::vector<float>> before;
  auto copy = [](const sluice_tensor &tensor) {
    auto *data = static_cast<const float *>(tensor.data);
    return std::vector<float>(data, data + tensor.bytes / sizeof(float));
  };
  for (const sluice_tensor &tensor : stage.tensors())
    before[tensor.name] = copy(tensor);
  stage.beginStep(0); // no gradient
  stage.optimizerStep(0);
  for (const sluice_tensor &tensor : stage.tensors()) {
    INFO(tensor.name);
    const std::string name = tensor.name;
    const bool isVector =
        name.ends_with(".bias") || name.find("norm") != std::string::npos;
    std::vector<float> expected = before[name];
    // 1 - learning rate times decay of 0.1
    for (float &value : expected)
      value *= isVector ? 1.0f : 0.95f;
    CHECK(copy(tensor) == expected);
  }
}

TEST_CASE("gpt: the loss falls on a real text") {
  GptShape shape;
  shape.hidden = 32;
  shape.ffn = 128;
  shape.heads = 4;
  shape.sequence = shape.positions = 32;
  shape.rows = 4;
  shape.microbatches = 4;
  GptPipeline pipeline(sluice_gpt_module(), shape, {1, 1});
  constexpr uint64_t kRun = 100, kLast = 10;
  double first = 0, last = 0;
  for (uint64_t step = 0; step < kRun; ++step) {
    pipeline.trainStep(step);
    if (step == 0)
      first = pipeline.loss();
    if (step >= kRun - kLast)
      last += pipeline.loss() / double(kLast);
  }
  // With small weights all bytes are nearly equally likely. Below the entropy
  // of single bytes comes only who looks at the bytes before.
  CHECK(std::abs(first - std::log(256.0)) < 0.1);
  CHECK(last < byteEntropy(shape.data) - 0.1);
}

TEST_CASE("gpt: nothing is allocated after bind") {
  const GptShape shape = trainingShape();
  GptPipeline pipeline(sluice_gpt_module(), shape, {2, 2});
  pipeline.trainStep(0);
  const uint64_t before = allocationCount();
  pipeline.trainStep(1);
  double loss = pipeline.loss();
  const uint64_t after = allocationCount();
  CHECK(before > 0);
  CHECK(after == before);
  CHECK(loss > 0);
}

TEST_CASE("gpt: tensors have the model's names and positions in every stage") {
  GptShape shape = trainingShape();
  GptPipeline pipeline(sluice_gpt_module(), shape, {1, 3});
  std::string listing;
  for (auto &stage : pipeline.stages)
    for (const sluice_tensor &tensor : stage->tensors())
      if (tensor.position < 15 || tensor.position > 48)
        listing += std::to_string(tensor.position) + " " + tensor.name + " " +
                   std::to_string(tensor.bytes) + "\n";
  CHECK(listing == "0 embedding.token 24576\n"
                   "1 embedding.position 1920\n"
                   "2 block.0.norm1.weight 96\n"
                   "3 block.0.norm1.bias 96\n"
                   "4 block.0.attention.qkv.weight 6912\n"
                   "5 block.0.attention.qkv.bias 288\n"
                   "6 block.0.attention.projection.weight 2304\n"
                   "7 block.0.attention.projection.bias 96\n"
                   "8 block.0.norm2.weight 96\n"
                   "9 block.0.norm2.bias 96\n"
                   "10 block.0.mlp.up.weight 3840\n"
                   "11 block.0.mlp.up.bias 160\n"
                   "12 block.0.mlp.down.weight 3840\n"
                   "13 block.0.mlp.down.bias 96\n"
                   "14 block.1.norm1.weight 96\n"
                   "49 block.3.mlp.down.bias 96\n"
                   "50 head.norm.weight 96\n"
                   "51 head.norm.bias 96\n"
                   "52 head.weight 24576\n");
}
