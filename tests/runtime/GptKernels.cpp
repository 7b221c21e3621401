//===- tests/runtime/GptKernels.cpp - The parts that the model is made of -===//
#include "runtime/modules/gpt/Kernels.h"
#include "runtime/modules/gpt/MatrixProduct.h"
#include "runtime/modules/gpt/Random.h"
#include "runtime/modules/gpt/Text.h"
#include "tests/Catch.h"
#include "tests/runtime/GptDriver.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

using namespace sluice::gpt;

namespace {

/// Largest relative error of exponential over its range, in units of the type's
/// spacing at 1.
template <typename Real> double exponentialError(double limit) {
  double worst = 0;
  for (double x = -limit; x <= limit; x += limit / 100'003) {
    Real argument = Real(x);
    double exact = std::exp(double(argument));
    double error = std::abs(double(exponential(argument)) - exact) / exact;
    worst = std::max(worst, error);
  }
  return worst / double(std::numeric_limits<Real>::epsilon());
}

} // namespace

TEST_CASE("gpt: exponential is right within a few units in the last place") {
  CHECK(exponentialError<float>(64) < 2);
  CHECK(exponentialError<double>(512) < 2);
  CHECK(exponential(0.0f) == 1.0f);
  CHECK(exponential(0.0) == 1.0);
  CHECK(exponential(-std::numeric_limits<float>::infinity()) ==
        exponential(-64.0f));
  CHECK(std::isnan(exponential(std::numeric_limits<float>::quiet_NaN())));
}

TEST_CASE("gpt: the matrix library computes right products") {
  sluice::Status status = prepareMatrixProducts();
  CHECK(status.message() == "");
  CHECK(status.ok());
}

TEST_CASE("gpt: products take transposed, strided and added operands") {
  // a = [1 2; 3 4; 5 6], b = [1 0 2; 0 1 3] within rows of 4.
  const double a[] = {1, 2, 3, 4, 5, 6};
  const double b[] = {1, 0, 2, -9, 0, 1, 3, -9};
  const double expected[] = {1, 2, 8, 3, 4, 18, 5, 6, 28};
  double c[9];
  multiply(matrix(a, 3, 2), matrix(b, 2, 3, 4), c);
  CHECK(std::equal(c, c + 9, expected));
  const double stored[] = {1, 3, 5, 2, 4, 6}; // a's transpose
  std::fill(c, c + 9, 1);
  multiply(transpose(matrix(stored, 2, 3)), matrix(b, 2, 3, 4), c, Into::Add);
  for (size_t i = 0; i < 9; ++i)
    CHECK(c[i] == expected[i] + 1);
}

TEST_CASE("gpt: AdamW follows its published formula") {
  const double rate = 0.05, decay = 0.1;
  double p = 2, m = 0, v = 0;
  double parameter = p, mean = 0, square = 0;
  for (uint64_t step = 0; step < 5; ++step) {
    const double gradient = step % 2 ? -0.3 : 0.7 + double(step);
    const double part = 0.25, rest = gradient - part;
    const bool isSum = step == 3;
    AdamW(rate, step)
        .update(&parameter,
                isSum ? Sum<double>{&part, &rest}
                      : Sum<double>{&gradient, nullptr},
                &mean, &square, 1, true);
    m = 0.9 * m + 0.1 * gradient;
    v = 0.95 * v + 0.05 * gradient * gradient;
    double corrected = m / (1 - std::pow(0.9, double(step + 1)));
    double deviation = std::sqrt(v / (1 - std::pow(0.95, double(step + 1))));
    p -= rate * (corrected / (deviation + 1e-8) + decay * p);
    CHECK(std::abs(parameter - p) < 1e-14);
  }
}

TEST_CASE("gpt: cross entropy and its gradient of a row by hand") {
  // e^0, e^ln 2, e^ln 5 of 8 in all.
  double logits[] = {0, std::log(2.0), std::log(5.0)};
  CHECK(std::abs(crossEntropy(logits, 3, 1, 0.5) - std::log(4.0)) < 1e-15);
  CHECK(std::abs(logits[0] - 0.5 / 8) < 1e-16);
  CHECK(std::abs(logits[1] - 0.5 * (2.0 / 8 - 1)) < 1e-16);
  CHECK(std::abs(logits[2] - 0.5 * 5 / 8) < 1e-16);
}

TEST_CASE("gpt: bell-shaped numbers have mean 0 and variance 1") {
  double sum = 0, squares = 0;
  constexpr int kCount = 200'000;
  for (int i = 0; i < kCount; ++i) {
    double value = bellShaped(extendHash(startHash(Use::Weights, 1), i));
    sum += value;
    squares += value * value;
  }
  // Five standard deviations of either mean: 1/√n and below √(2/n).
  CHECK(std::abs(sum / kCount) < 5 / std::sqrt(double(kCount)));
  CHECK(std::abs(squares / kCount - 1) < 5 * std::sqrt(2.0 / kCount));
  CHECK(bellShaped(0) == -bellShaped(UINT64_MAX));
}

TEST_CASE("gpt: samples are runs of the text, drawn by step, microbatch, row") {
  std::string content;
  for (int i = 0; i < 5000; ++i)
    content += char(i % 251);
  sluice::test::TemporaryFile file(content);
  Config config;
  config.vocab = 256;
  config.sequence = 20;
  config.seed = 3;
  config.data = file.path;
  Text text, again;
  REQUIRE(text.read(config).ok());
  REQUIRE(again.read(config).ok());
  std::set<ptrdiff_t> starts;
  const uint8_t *first = text.sample(config, 0, 0, 0);
  for (uint64_t step = 0; step < 4; ++step)
    for (uint32_t microbatch = 0; microbatch < 4; ++microbatch)
      for (uint32_t row = 0; row < 4; ++row) {
        const uint8_t *sample = text.sample(config, step, microbatch, row);
        starts.insert(sample - first);
        for (uint32_t i = 0; i < config.sequence; ++i)
          REQUIRE((sample[i] + 1) % 251 == sample[i + 1]);
        CHECK(std::equal(sample, sample + config.sequence + 1,
                         again.sample(config, step, microbatch, row)));
      }
  // 64 of 4980 places: two or more collisions among them are below 1 in 10 by
  // chance, six below 1 in 10000.
  CHECK(starts.size() > 58);
}
