//===- tests/runtime/GptClipping.cpp - Gradients that are clipped ---------===//
#include "runtime/modules/gpt/Module.h"
#include "tests/Catch.h"
#include "tests/runtime/GptDriver.h"

#include <cmath>
#include <cstring>

using namespace sluice::test;

namespace {

GptShape clippingShape(double clipNorm, bool tied = false) {
  GptShape shape;
  shape.layers = 4;
  shape.microbatches = 3;
  shape.clipNorm = clipNorm;
  shape.tied = tied;
  return shape;
}

/// One step of a whole model in double precision.
struct Stepped {
  explicit Stepped(const GptShape &shape)
      : pipeline(sluice_gpt_double_module(), shape, {shape.layers}) {
    pipeline.trainStep(0);
    const GptStage &stage = *pipeline.stages[0];
    count = stage.bytes.parameters / sizeof(double);
    gradients = stage.gradients.as<double>();
    means = stage.optimizer.as<double>(); // they stand first
    for (size_t i = 0; i < count; ++i)
      squares += double(gradients[i]) * gradients[i];
  }
  GptPipeline pipeline;
  size_t count = 0;
  const double *gradients = nullptr, *means = nullptr;
  long double squares = 0;
};

GptShape doubled(GptShape shape) {
  shape.dtype = "fp64";
  return shape;
}

std::map<uint64_t, std::string> trained(const GptShape &shape,
                                        const std::vector<uint32_t> &cut) {
  GptPipeline pipeline(sluice_gpt_module(), shape, cut);
  for (uint64_t step = 0; step < 3; ++step)
    pipeline.trainStep(step);
  return pipeline.weights();
}

} // namespace

TEST_CASE("gpt: gradients over the norm are scaled to it, others stay") {
  const Stepped free(doubled(clippingShape(0)));
  const double norm = std::sqrt(static_cast<double>(free.squares));
  REQUIRE(norm > 0.1);
  for (double part : {0.25, 0.9, 2.0}) {
    // The shape tells its limit in six decimals.
    const double limit = std::round(norm * part * 1e6) / 1e6;
    const Stepped clipped(doubled(clippingShape(limit)));
    const double factor = part < 1 ? limit / (norm + 1e-6) : 1;
    // A mean after its first step is a tenth of the gradient.
    for (size_t i = 0; i < free.count; ++i) {
      const double mean = 0.1 * factor * free.gradients[i];
      REQUIRE(std::abs(clipped.means[i] - mean) <= 1e-9 * std::abs(mean));
    }
  }
}

TEST_CASE("gpt: norms are those of every tensor, whatever the cut") {
  for (bool tied : {false, true}) {
    const GptShape shape = clippingShape(1e-3, tied);
    const auto whole = trained(shape, {4});
    CHECK(trained(shape, {2, 2}) == whole);
    CHECK(trained(shape, {1, 2, 0, 1}) == whole);
    CHECK(trained(clippingShape(0, tied), {4}) != whole);
    // Nothing is over so large a norm: not a bit changes.
    CHECK(trained(clippingShape(1e6, tied), {2, 2}) ==
          trained(clippingShape(0, tied), {4}));
  }
}

TEST_CASE("gpt: a norm that does not limit is refused") {
  for (const char *value : {"0", "-1", "nan", "inf", "1x", ""}) {
    sluice_stage stage{};
    stage.optimizer_parts = stage.gradient_parts = 1;
    stage.stages = stage.ranks = stage.replicas = 1;
    stage.microbatches = 1;
    stage.trained = 1;
    const std::string lines =
        gptLines(gptKeys(GptShape(), GptPart{0, 2, true, true}));
    const std::string run = std::string("clip_norm=") + value + "\n";
    stage.description = lines.c_str();
    stage.run = run.c_str();
    void *instance = nullptr;
    sluice_error error = {};
    REQUIRE(sluice_gpt_module()->create(&stage, &instance, &error) != 0);
    CHECK(std::string(error.message) == std::string("clip_norm is '") + value +
                                            "', not a finite number over 0");
  }
}
