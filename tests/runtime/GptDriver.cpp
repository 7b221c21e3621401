//===- tests/runtime/GptDriver.cpp - Drives the gpt module by hand -------===//
#include "tests/runtime/GptDriver.h"

#include <atomic>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <new>
#include <stdexcept>

#include <unistd.h>

namespace {
std::atomic<uint64_t> allocations{0};

void *allocate(std::size_t bytes) {
  ++allocations;
  if (void *memory = std::malloc(bytes ? bytes : 1))
    return memory;
  throw std::bad_alloc();
}
} // namespace

void *operator new(std::size_t bytes) { return allocate(bytes); }
void *operator new[](std::size_t bytes) { return allocate(bytes); }
void *operator new(std::size_t bytes, const std::nothrow_t &) noexcept {
  ++allocations;
  return std::malloc(bytes ? bytes : 1);
}
void *operator new[](std::size_t bytes, const std::nothrow_t &tag) noexcept {
  return operator new(bytes, tag);
}
void operator delete(void *memory) noexcept { std::free(memory); }
void operator delete[](void *memory) noexcept { std::free(memory); }
void operator delete(void *memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void *memory, std::size_t) noexcept {
  std::free(memory);
}

namespace sluice::test {

uint64_t allocationCount() { return allocations; }

std::map<std::string, std::string> gptKeys(const GptShape &shape,
                                           const GptPart &part) {
  auto text = [](uint64_t value) { return std::to_string(value); };
  return {{"kind", "gpt"},
          {"hidden", text(shape.hidden)},
          {"ffn", text(shape.ffn)},
          {"gated_ffn", "0"},
          {"heads", text(shape.heads)},
          {"kv_heads", text(shape.heads)},
          {"vocab", text(shape.vocab)},
          {"sequence", text(shape.sequence)},
          {"positions", text(shape.positions)},
          {"microbatch_size", text(shape.rows)},
          {"layers", text(shape.layers)},
          {"bias", "1"},
          {"norm", "layer"},
          {"position", "learned"},
          {"tied_embeddings", shape.tied ? "1" : "0"},
          {"dtype", shape.dtype},
          {"first_layer", text(part.first)},
          {"stage_layers", text(part.count)},
          {"embedding", text(part.embedding)},
          {"head", text(part.head)}};
}

std::string gptLines(const std::map<std::string, std::string> &keys) {
  std::string lines;
  for (const auto &[key, value] : keys)
    lines.append(key).append("=").append(value).append("\n");
  return lines;
}

AlignedBytes::AlignedBytes(uint64_t bytes) : size(bytes) {
  constexpr uint64_t kAlignment = 256;
  uint64_t whole = (bytes + kAlignment) / kAlignment * kAlignment;
  memory.reset(
      static_cast<unsigned char *>(std::aligned_alloc(kAlignment, whole)));
  // Bytes of NaNs: whoever reads what was never written is found out.
  std::memset(memory.get(), 0xff, whole);
}

void AlignedBytes::Free::operator()(unsigned char *data) const {
  std::free(data);
}

namespace {
void check(int code, const sluice_error &error) {
  if (code != 0)
    throw std::runtime_error(error.message);
}
} // namespace

GptStage::GptStage(const sluice_module *shipped, const GptShape &shape,
                   const GptPart &part, uint32_t index, uint32_t stages)
    : module(shipped), hasInput(!part.embedding), hasOutput(!part.head) {
  std::string description = gptLines(gptKeys(shape, part));
  std::string run =
      "data=" + shape.data +
      "\nlearning_rate=" + std::to_string(shape.learningRate) +
      "\nseed=" + std::to_string(shape.seed) + "\n" +
      (shape.clipNorm > 0 ? "clip_norm=" + std::to_string(shape.clipNorm) + "\n"
                          : "");
  const uint32_t before = index - 1, after = index + 1;
  sluice_stage stage{};
  stage.optimizer_parts = stage.gradient_parts = 1;
  stage.stage = stage.rank = index;
  stage.stages = stage.ranks = stages;
  stage.microbatches = shape.microbatches;
  stage.replicas = 1;
  stage.trained = shape.trained;
  stage.input_stages = &before;
  stage.output_stages = &after;
  stage.input_count = hasInput;
  stage.output_count = hasOutput;
  stage.description = description.c_str();
  stage.run = run.c_str();
  sluice_error error;
  check(module->create(&stage, &instance, &error), error);
  check(module->bytes(instance, &bytes, &error), error);
  parameters = AlignedBytes(bytes.parameters);
  gradients = AlignedBytes(bytes.gradients);
  optimizer = AlignedBytes(bytes.optimizer);
  workspace = AlignedBytes(bytes.workspace);
  norms = AlignedBytes(bytes.norms);
  for (uint32_t i = 0; i < shape.microbatches; ++i) {
    saved.emplace_back(bytes.saved);
    kept.emplace_back(bytes.kept);
  }
  sluice_state state{parameters.buffer(), gradients.buffer(),
                     optimizer.buffer(), workspace.buffer(), norms.buffer()};
  check(module->bind(instance, &state, &error), error);
}

GptStage::~GptStage() { module->destroy(instance); }

sluice_call GptStage::call(uint64_t step, uint32_t microbatch) const {
  sluice_call result{};
  result.step = step;
  result.microbatch = microbatch;
  result.input_count = hasInput;
  result.output_count = hasOutput;
  result.saved = saved[microbatch].buffer();
  result.kept = kept[microbatch].buffer();
  return result;
}

void GptStage::beginStep(uint64_t step) {
  sluice_error error;
  check(module->begin_step(instance, step, &error), error);
}

void GptStage::forward(uint64_t step, uint32_t microbatch, sluice_buffer input,
                       sluice_buffer output) {
  sluice_error error;
  sluice_call arguments = call(step, microbatch);
  arguments.inputs = &input;
  arguments.outputs = &output;
  check(module->forward(instance, &arguments, &error), error);
}

void GptStage::backwardInput(uint64_t step, uint32_t microbatch,
                             sluice_buffer outputGradient,
                             sluice_buffer inputGradient) {
  sluice_error error;
  sluice_call arguments = call(step, microbatch);
  arguments.output_gradients = &outputGradient;
  arguments.input_gradients = &inputGradient;
  check(module->backward_input(instance, &arguments, &error), error);
}

void GptStage::backwardWeight(uint64_t step, uint32_t microbatch) {
  sluice_error error;
  sluice_call arguments = call(step, microbatch);
  check(module->backward_weight(instance, &arguments, &error), error);
}

void GptStage::normGradients(const sluice_buffer *tied) {
  sluice_error error;
  check(module->norm_gradients(instance, tied, nullptr, &error), error);
}

void GptStage::optimizerStep(uint64_t step, const sluice_buffer *tied) {
  sluice_error error;
  check(module->optimizer_step(instance, step, tied, nullptr, &error), error);
}

double GptStage::loss() {
  sluice_error error;
  double value = 0;
  int has = 0;
  check(module->loss(instance, &value, &has, &error), error);
  return has ? value : std::numeric_limits<double>::quiet_NaN();
}

std::vector<sluice_tensor> GptStage::tensors() {
  std::vector<sluice_tensor> result(module->tensor_count(instance));
  sluice_error error;
  for (uint32_t i = 0; i < result.size(); ++i)
    check(module->tensor(instance, i, &result[i], &error), error);
  return result;
}

GptPipeline::GptPipeline(const sluice_module *module, const GptShape &shape,
                         const std::vector<uint32_t> &cut)
    : microbatches(shape.microbatches),
      tiedBytes(shape.tied ? shape.tableBytes() : 0) {
  uint32_t first = 0;
  for (uint32_t i = 0; i < cut.size(); first += cut[i++]) {
    GptPart part{first, cut[i], i == 0, i + 1 == cut.size()};
    stages.push_back(std::make_unique<GptStage>(module, shape, part, i,
                                                uint32_t(cut.size())));
    outputs.emplace_back();
    outputGradients.emplace_back();
    for (uint32_t k = 0; k < microbatches; ++k) {
      outputs.back().emplace_back(stages.back()->bytes.output);
      outputGradients.back().emplace_back(stages.back()->bytes.output);
    }
  }
}

void GptPipeline::forward(uint64_t step, uint32_t microbatch) {
  for (size_t i = 0; i < stages.size(); ++i)
    stages[i]->forward(step, microbatch,
                       i ? outputs[i - 1][microbatch].buffer()
                         : sluice_buffer{},
                       outputs[i][microbatch].buffer());
}

void GptPipeline::backwardInput(uint64_t step, uint32_t microbatch) {
  for (size_t i = stages.size(); i-- > 0;)
    stages[i]->backwardInput(
        step, microbatch, outputGradients[i][microbatch].buffer(),
        i ? outputGradients[i - 1][microbatch].buffer() : sluice_buffer{});
}

void GptPipeline::backwardWeight(uint64_t step, uint32_t microbatch) {
  for (auto &stage : stages)
    stage->backwardWeight(step, microbatch);
}

void GptPipeline::beginStep(uint64_t step) {
  for (auto &stage : stages)
    stage->beginStep(step);
}

sluice_buffer GptPipeline::tiedOf(size_t stage) const {
  bool isFirst = stage == 0, isLast = stage + 1 == stages.size();
  if (tiedBytes == 0 || isFirst == isLast)
    return {};
  GptStage &other = isFirst ? *stages.back() : *stages.front();
  return {other.gradients.buffer().data, tiedBytes};
}

void GptPipeline::normGradients() {
  for (size_t i = 0; i < stages.size(); ++i) {
    sluice_buffer tied = tiedOf(i);
    stages[i]->normGradients(tied.data ? &tied : nullptr);
  }
  const size_t count = stages[0]->bytes.norms / sizeof(double);
  for (size_t n = 0; n < count; ++n) {
    double sum = 0;
    for (auto &stage : stages)
      sum += stage->norms.as<double>()[n];
    for (auto &stage : stages)
      stage->norms.as<double>()[n] = sum;
  }
}

void GptPipeline::optimizerStep(uint64_t step) {
  if (stages[0]->bytes.norms != 0)
    normGradients();
  for (size_t i = 0; i < stages.size(); ++i) {
    sluice_buffer tied = tiedOf(i);
    stages[i]->optimizerStep(step, tied.data ? &tied : nullptr);
  }
}

void GptPipeline::trainStep(uint64_t step) {
  beginStep(step);
  for (uint32_t k = 0; k < microbatches; ++k)
    forward(step, k);
  for (uint32_t k = 0; k < microbatches; ++k) {
    backwardInput(step, k);
    backwardWeight(step, k);
  }
  optimizerStep(step);
}

std::map<uint64_t, std::string> GptPipeline::weights() {
  std::map<uint64_t, std::string> result;
  for (auto &stage : stages)
    for (const sluice_tensor &tensor : stage->tensors())
      result[tensor.position] =
          std::string(static_cast<const char *>(tensor.data), tensor.bytes);
  return result;
}

TemporaryFile::TemporaryFile(const std::string &content) {
  static std::atomic<unsigned> number{0};
  auto name =
      "sluice-gpt-" + std::to_string(getpid()) + "-" + std::to_string(number++);
  path = (std::filesystem::temp_directory_path() / name).string();
  std::ofstream(path, std::ios::binary) << content;
}

TemporaryFile::~TemporaryFile() { std::filesystem::remove(path); }

} // namespace sluice::test
