//===- tests/runtime/GptGradients.cpp - The model and its derivatives ----===//
//
// The loss against a plain program for the same formulas; every gradient
// against finite differences of the loss. In double precision, which is the
// same code.
//
//===----------------------------------------------------------------------===//
#include "runtime/modules/gpt/Module.h"
#include "tests/Catch.h"
#include "tests/runtime/GptDriver.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <numbers>
#include <random>
#include <span>

using namespace sluice::test;

namespace {

constexpr GptPart kWhole{0, 2, true, true};

GptShape doubleShape() {
  GptShape shape;
  shape.dtype = "fp64";
  return shape;
}

std::span<double> values(const sluice_tensor &tensor) {
  return {static_cast<double *>(tensor.data), tensor.bytes / sizeof(double)};
}

/// Weights far from their small initial values, so that every term of every
/// gradient weighs in.
void scatter(GptStage &stage) {
  std::mt19937 generator(11);
  std::uniform_real_distribution<double> distribution(-0.5, 0.5);
  for (const sluice_tensor &tensor : stage.tensors())
    for (double &value : values(tensor))
      value += distribution(generator);
}

/// Derivative of `f` by `x`, by differences of fourth order:
/// (8 (f(x+e) - f(x-e)) - (f(x+2e) - f(x-2e))) / 12e, wrong by e⁴/30 f⁽⁵⁾ and
/// by rounding, 1.5 |f| c 2^-53 / e with c the growth of errors in f.
constexpr double kStep = 1e-3;
double derivative(double &x, const std::function<double()> &f) {
  const double centre = x;
  auto at = [&](double offset) {
    x = centre + offset * kStep;
    return f();
  };
  double near = at(1) - at(-1), far = at(2) - at(-2);
  x = centre;
  return (8 * near - far) / (12 * kStep);
}

/// With f near 3 and c near 10, rounding gives 5e-12, and e⁴/30 is 3e-14. The
/// largest element of each gradient is over kLeast; with fifth derivatives up
/// to 1e4 times that, both together stay below 1e-9 of it. Ten times that is
/// allowed; any missing or wrong term shows far above.
constexpr double kLeast = 1e-2;
constexpr double kTolerance = 1e-8;

/// Compares the gradients with differences of f by each of `at`; returns the
/// largest gradient.
double compare(std::span<double> at, std::span<const double> gradients,
               const std::function<double()> &f) {
  double largest = 0, error = 0;
  for (size_t i = 0; i < at.size(); ++i) {
    largest = std::max(largest, std::abs(gradients[i]));
    error = std::max(error, std::abs(derivative(at[i], f) - gradients[i]));
  }
  CHECK(error <= kTolerance * largest);
  return largest;
}

/// The gradients of a tensor, which lie where the tensor lies in its buffer.
std::span<const double> gradientsOf(const GptStage &stage,
                                    const sluice_tensor &tensor) {
  auto offset =
      static_cast<double *>(tensor.data) - stage.parameters.as<double>();
  return {stage.gradients.as<double>() + offset, tensor.bytes / sizeof(double)};
}

using Rows = std::vector<std::vector<double>>;

/// The model by plain loops, from its tensors by name.
class PlainModel {
public:
  PlainModel(GptStage &stage, const GptShape &modelShape) : shape(modelShape) {
    for (const sluice_tensor &tensor : stage.tensors())
      tensors[tensor.name] = values(tensor);
  }

  /// Mean cross entropy over `tokens`, whose last is only a target.
  double loss(const std::vector<uint8_t> &tokens) const {
    Rows x = embed(tokens);
    for (uint32_t layer = 0; layer < shape.layers; ++layer)
      block("block." + std::to_string(layer) + ".", x);
    Rows logits = linear(shape.tied ? "embedding.token" : "head.weight", "",
                         norm("head.norm", x));
    double sum = 0;
    for (size_t t = 0; t < logits.size(); ++t) {
      double total = 0;
      for (double logit : logits[t])
        total += std::exp(logit);
      sum += std::log(total) - logits[t][tokens[t + 1]];
    }
    return sum / double(logits.size());
  }

private:
  Rows embed(const std::vector<uint8_t> &tokens) const {
    const size_t h = shape.hidden;
    Rows x(shape.sequence, std::vector<double>(h));
    for (size_t t = 0; t < x.size(); ++t)
      for (size_t i = 0; i < h; ++i)
        x[t][i] = tensors.at("embedding.token")[tokens[t] * h + i] +
                  tensors.at("embedding.position")[t * h + i];
    return x;
  }

  Rows norm(const std::string &name, Rows x) const {
    for (auto &row : x) {
      double mean = 0, variance = 0;
      for (double value : row)
        mean += value / double(row.size());
      for (double value : row)
        variance += (value - mean) * (value - mean) / double(row.size());
      for (size_t i = 0; i < row.size(); ++i)
        row[i] = (row[i] - mean) / std::sqrt(variance + 1e-5) *
                     tensors.at(name + ".weight")[i] +
                 tensors.at(name + ".bias")[i];
    }
    return x;
  }

  Rows linear(const std::string &weight, const std::string &bias,
              const Rows &x) const {
    auto w = tensors.at(weight);
    const size_t inputs = x[0].size(), count = w.size() / inputs;
    Rows y(x.size(), std::vector<double>(count));
    for (size_t t = 0; t < x.size(); ++t)
      for (size_t o = 0; o < count; ++o) {
        y[t][o] = bias.empty() ? 0 : tensors.at(bias)[o];
        for (size_t i = 0; i < inputs; ++i)
          y[t][o] += w[o * inputs + i] * x[t][i];
      }
    return y;
  }

  /// One position of one head.
  void attend(const Rows &qkv, size_t t, size_t head, Rows &y) const {
    const size_t h = shape.hidden, d = h / shape.heads, at = head * d;
    std::vector<double> weights(t + 1);
    double total = 0;
    for (size_t s = 0; s <= t; ++s) {
      double score = 0;
      for (size_t i = 0; i < d; ++i)
        score += qkv[t][at + i] * qkv[s][h + at + i];
      total += weights[s] = std::exp(score / std::sqrt(double(d)));
    }
    for (size_t s = 0; s <= t; ++s)
      for (size_t i = 0; i < d; ++i)
        y[t][at + i] += weights[s] / total * qkv[s][2 * h + at + i];
  }

  static void add(Rows &x, const Rows &y) {
    for (size_t t = 0; t < x.size(); ++t)
      for (size_t i = 0; i < x[t].size(); ++i)
        x[t][i] += y[t][i];
  }

  void block(const std::string &name, Rows &x) const {
    Rows qkv = linear(name + "attention.qkv.weight",
                      name + "attention.qkv.bias", norm(name + "norm1", x));
    Rows heads(x.size(), std::vector<double>(shape.hidden));
    for (size_t t = 0; t < x.size(); ++t)
      for (size_t head = 0; head < shape.heads; ++head)
        attend(qkv, t, head, heads);
    add(x, linear(name + "attention.projection.weight",
                  name + "attention.projection.bias", heads));
    Rows wide = linear(name + "mlp.up.weight", name + "mlp.up.bias",
                       norm(name + "norm2", x));
    for (auto &row : wide)
      for (double &u : row)
        u *= 0.5 * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) *
                                  (u + 0.044715 * u * u * u)));
    add(x, linear(name + "mlp.down.weight", name + "mlp.down.bias", wide));
  }

  GptShape shape;
  std::map<std::string, std::span<const double>> tensors;
};

} // namespace

TEST_CASE("gpt: the loss is that of a plain program for the formulas") {
  // As many bytes as one sample has: every sample starts at the first.
  const std::vector<uint8_t> tokens = {3, 200, 0, 255, 3, 77};
  TemporaryFile file(std::string(tokens.begin(), tokens.end()));
  GptShape shape = doubleShape();
  shape.data = file.path;
  shape.tied = GENERATE(false, true);
  GptStage stage(sluice_gpt_double_module(), shape, kWhole);
  scatter(stage);
  stage.beginStep(0);
  CHECK(std::isnan(stage.loss()));
  stage.forward(0, 0, {}, {});
  double expected = PlainModel(stage, shape).loss(tokens);
  CHECK(expected > 1);
  CHECK(std::abs(stage.loss() - expected) < 1e-12 * expected);
}

TEST_CASE("gpt: gradients of all tensors agree with finite differences") {
  std::string content; // over 16 symbols, so that there are few parameters
  for (unsigned i = 0; i < 500; ++i)
    content += char(i * i / 7 % 16);
  TemporaryFile file(content);
  GptShape shape = doubleShape();
  shape.data = file.path;
  shape.vocab = 16;
  shape.tied = GENERATE(false, true);
  GptStage stage(sluice_gpt_double_module(), shape, kWhole);
  scatter(stage);
  auto loss = [&] {
    stage.beginStep(0);
    for (uint32_t k = 0; k < shape.microbatches; ++k)
      stage.forward(0, k, {}, {});
    return stage.loss();
  };
  loss();
  for (uint32_t k = 0; k < shape.microbatches; ++k) {
    stage.backwardInput(0, k, {}, {});
    stage.backwardWeight(0, k);
  }
  // The differences clear the gradients: keep a copy.
  std::vector<double> copy(stage.gradients.as<double>(),
                           stage.gradients.as<double>() +
                               stage.bytes.gradients / sizeof(double));
  // Those of a tied table stand apart: by the embedding first, by the head
  // last.
  const size_t table = shape.tied ? size_t(shape.vocab) * shape.hidden : 0;
  for (size_t i = 0; i < table; ++i)
    copy[i] += copy[copy.size() - table + i];
  const auto tensors = stage.tensors();
  CHECK(tensors.size() == 2 + 2 * 12 + (shape.tied ? 2 : 3));
  for (const sluice_tensor &tensor : tensors) {
    INFO(tensor.name);
    auto gradients = gradientsOf(stage, tensor);
    auto offset = gradients.data() - stage.gradients.as<double>();
    double largest =
        compare(values(tensor), {copy.data() + offset, gradients.size()}, loss);
    CHECK(largest > kLeast);
  }
}

TEST_CASE("gpt: a tied head by itself has the table and its gradients first") {
  GptShape shape = doubleShape();
  shape.tied = true;
  shape.microbatches = 1;
  GptStage stage(sluice_gpt_double_module(), shape, {0, 2, false, true});
  scatter(stage);
  AlignedBytes input(stage.bytes.input), gradient(stage.bytes.input);
  double *x = input.as<double>();
  for (size_t i = 0; i < shape.tokens() * shape.hidden; ++i)
    x[i] = std::sin(double(i * i));
  auto loss = [&] {
    stage.beginStep(0);
    stage.forward(0, 0, input.buffer(), {});
    return stage.loss();
  };
  loss();
  stage.backwardInput(0, 0, {}, gradient.buffer());
  stage.backwardWeight(0, 0);
  const sluice_tensor table = stage.tensors().front();
  CHECK(std::string(table.name) == "embedding.token");
  CHECK(table.position == 0);
  CHECK(table.data == stage.parameters.buffer().data);
  std::vector<double> copy(stage.gradients.as<double>(),
                           stage.gradients.as<double>() +
                               table.bytes / sizeof(double));
  CHECK(compare(values(table), copy, loss) > kLeast);
}

TEST_CASE("gpt: a step without the tied gradients is refused") {
  GptShape shape;
  shape.tied = true;
  GptStage head(sluice_gpt_module(), shape, {0, 2, false, true});
  head.beginStep(0);
  CHECK_THROWS_WITH(head.optimizerStep(0),
                    "the step gets 0 bytes of the tied gradients, not 8192");
  const sluice_buffer half = {head.gradients.buffer().data, 4096};
  CHECK_THROWS_WITH(head.optimizerStep(0, &half),
                    "the step gets 4096 bytes of the tied gradients, not 8192");
}

TEST_CASE("gpt: the input gradient of the last stage agrees with finite "
          "differences of the loss") {
  GptShape shape = doubleShape();
  shape.microbatches = 1;
  GptStage stage(sluice_gpt_double_module(), shape, {0, 2, false, true});
  scatter(stage);
  AlignedBytes input(stage.bytes.input), gradient(stage.bytes.input);
  std::span<double> x(input.as<double>(), shape.tokens() * shape.hidden);
  for (size_t i = 0; i < x.size(); ++i)
    x[i] = std::sin(double(i * i));
  auto loss = [&] {
    stage.beginStep(0);
    stage.forward(0, 0, input.buffer(), {});
    return stage.loss();
  };
  loss();
  stage.backwardInput(0, 0, {}, gradient.buffer());
  CHECK(compare(x, {gradient.as<double>(), x.size()}, loss) > kLeast);
}

TEST_CASE("gpt: the gradients of a middle stage agree with finite "
          "differences of a product with its output") {
  GptShape shape = doubleShape();
  shape.microbatches = 1;
  GptStage stage(sluice_gpt_double_module(), shape, {1, 1, false, false});
  scatter(stage);
  const size_t count = shape.tokens() * shape.hidden;
  AlignedBytes input(stage.bytes.input), inputGradient(stage.bytes.input);
  AlignedBytes output(stage.bytes.output), factors(stage.bytes.output);
  std::span<double> x(input.as<double>(), count);
  for (size_t i = 0; i < count; ++i) {
    x[i] = std::sin(double(i * i));
    factors.as<double>()[i] = std::cos(double(i * i)) / double(shape.tokens());
  }
  auto product = [&] {
    stage.forward(0, 0, input.buffer(), output.buffer());
    double sum = 0;
    for (size_t i = 0; i < count; ++i)
      sum += output.as<double>()[i] * factors.as<double>()[i];
    return sum;
  };
  stage.beginStep(0);
  product();
  stage.backwardInput(0, 0, factors.buffer(), inputGradient.buffer());
  stage.backwardWeight(0, 0);
  CHECK(compare(x, {inputGradient.as<double>(), count}, product) > kLeast);
  for (const sluice_tensor &tensor : stage.tensors()) {
    INFO(tensor.name);
    CHECK(compare(values(tensor), gradientsOf(stage, tensor), product) >
          kLeast);
  }
}

TEST_CASE("gpt: gradients in single precision agree with those in double") {
  GptShape shape = doubleShape();
  GptPipeline exact(sluice_gpt_double_module(), shape, {2});
  shape.dtype = "fp32";
  GptPipeline single(sluice_gpt_module(), shape, {2});
  // A step of the optimizer hides the size of gradients: only look at these.
  for (GptPipeline *pipeline : {&exact, &single}) {
    pipeline->beginStep(0);
    for (uint32_t k = 0; k < shape.microbatches; ++k) {
      pipeline->forward(0, k);
      pipeline->backwardInput(0, k);
      pipeline->backwardWeight(0, k);
    }
  }
  const size_t count = exact.stages[0]->bytes.gradients / sizeof(double);
  REQUIRE(single.stages[0]->bytes.gradients == count * sizeof(float));
  double largest = 0, error = 0;
  for (size_t i = 0; i < count; ++i) {
    double value = exact.stages[0]->gradients.as<double>()[i];
    largest = std::max(largest, std::abs(value));
    error = std::max(
        error, std::abs(single.stages[0]->gradients.as<float>()[i] - value));
  }
  // 2^-24 per rounding, some hundred roundings deep.
  CHECK(largest > 1e-2);
  CHECK(error < 1e-5 * largest);
}
