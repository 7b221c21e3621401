//===- tests/runtime/SyntheticTest.cpp - The module that checks bytes ----===//
#include "runtime/modules/synthetic/Synthetic.h"

#include "tests/Catch.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <string>
#include <vector>

namespace {

using Memory = std::array<unsigned char, 40>;

/// A stage 3 between the stages 2 and 4, and memory for one call.
class Stage {
public:
  explicit Stage(uint32_t number = 3, double seconds = 0,
                 uint32_t tiedTo = SLUICE_NO_STAGE, uint32_t reducedRanks = 1,
                 uint32_t parts = 1) {
    facts.stage = number;
    facts.reduced_ranks = reducedRanks;
    facts.optimizer_part = parts - 1;
    facts.optimizer_parts = facts.gradient_parts = parts;
    facts.tied_stage = tiedTo;
    facts.tied_bytes = tiedTo == SLUICE_NO_STAGE ? 0 : 16;
    facts.stages = 8;
    facts.microbatches = 4;
    facts.replicas = 1;
    input = number - 1;
    output = number + 1;
    facts.input_stages = &input;
    facts.output_stages = &output;
    facts.input_count = facts.output_count = 1;
    facts.description = facts.run = "";
    facts.forward_seconds = seconds;
    REQUIRE(module.create(&facts, &instance, &error) == 0);
    const sluice_state state = {{memory[0].data(), 40},
                                {memory[1].data(), 40},
                                {memory[2].data(), 40},
                                {memory[3].data(), 40}};
    REQUIRE(module.bind(instance, &state, &error) == 0);
    REQUIRE(module.begin_step(instance, 0, &error) == 0);
  }
  ~Stage() { module.destroy(instance); }
  Stage(const Stage &) = delete;
  Stage &operator=(const Stage &) = delete;

  const sluice_module &module = *sluice_synthetic_module();
  sluice_stage facts = {};
  uint32_t input, output;
  void *instance = nullptr;
  sluice_error error = {};
  std::array<Memory, 4> memory = {};
};

/// Buffers of one microbatch between two stages.
struct Call {
  explicit Call(uint32_t microbatch) {
    call.microbatch = microbatch;
    call.input_count = call.output_count = 1;
    call.inputs = &inputs;
    call.outputs = &outputs;
    call.output_gradients = &outputGradients;
    call.input_gradients = &inputGradients;
    call.saved = {saved.data(), saved.size()};
    call.kept = {kept.data(), kept.size()};
  }
  Memory in = {}, out = {}, gradientIn = {}, gradientOut = {}, saved = {},
         kept = {};
  sluice_buffer inputs = {in.data(), 37};
  sluice_buffer outputs = {out.data(), 37};
  sluice_buffer outputGradients = {gradientIn.data(), 37};
  sluice_buffer inputGradients = {gradientOut.data(), 37};
  sluice_call call = {};
};

} // namespace

/// Runs forward of stages 2 and 3 and backward_input of 4, so that stage 3 can
/// go backward.
static void upToBackward(Stage &two, Stage &three, Stage &four, Call &call2,
                         Call &call3) {
  call2.inputs.bytes = 0;
  REQUIRE(two.module.forward(two.instance, &call2.call, &two.error) == 0);
  call3.in = call2.out;
  REQUIRE(three.module.forward(three.instance, &call3.call, &three.error) == 0);
  Call call4(call3.call.microbatch);
  call4.in = call3.out;
  call4.outputGradients.bytes = 0;
  REQUIRE(four.module.forward(four.instance, &call4.call, &four.error) == 0);
  REQUIRE(four.module.backward_input(four.instance, &call4.call, &four.error) ==
          0);
  call3.gradientIn = call4.gradientOut;
}

TEST_CASE("runtime: synthetic passes what is right and tells what is wrong",
          "[runtime][synthetic]") {
  Stage two(2), three(3), four(4);
  Call call2(1), call3(1);
  upToBackward(two, three, four, call2, call3);
  const auto backward = [&] {
    const int code =
        three.module.backward_input(three.instance, &call3.call, &three.error);
    return code == 0 ? std::string() : std::string(three.error.message);
  };
  const auto withoutValues = [](std::string message) {
    const size_t at = message.find(" is 0x");
    return message.substr(0, at);
  };
  const Call good = call3;

  call3.gradientIn[36] ^= 1;
  CHECK(withoutValues(backward()) ==
        "buffer gradient from stage 4 for stage 3, microbatch 1: byte 36 of "
        "37");
  call3.gradientIn = good.gradientIn;

  call3.saved[0] ^= 0x80;
  CHECK(withoutValues(backward()) ==
        "buffer saved from stage 3 for stage 3, microbatch 1: byte 0 of 40");
  call3.saved = good.saved;

  call3.kept[17] = static_cast<unsigned char>(good.kept[17] + 1);
  CHECK(withoutValues(backward()) ==
        "buffer kept by forward from stage 3 for stage 3, microbatch 1: byte "
        "17 of 40");
  call3.kept = good.kept;

  CHECK(backward().empty());
  // Backward wrote it anew: what forward left is now wrong.
  CHECK(call3.kept != good.kept);
  CHECK(three.module.backward_weight(three.instance, &call3.call,
                                     &three.error) == 0);
  call3.kept = good.kept;
  CHECK(three.module.backward_weight(three.instance, &call3.call,
                                     &three.error) == 1);
  CHECK(withoutValues(three.error.message) ==
        "buffer kept by backward from stage 3 for stage 3, microbatch 1: byte "
        "0 of 40");
}

TEST_CASE("runtime: synthetic tells a neighbour's, an older and another "
          "microbatch's bytes",
          "[runtime][synthetic]") {
  Stage two(2), three(3);
  Call made(1), taken(1);
  made.inputs.bytes = 0;
  REQUIRE(two.module.forward(two.instance, &made.call, &two.error) == 0);
  taken.in = made.out;
  const auto forward = [&] {
    return three.module.forward(three.instance, &taken.call, &three.error);
  };
  CHECK(forward() == 0);
  taken.call.microbatch = 2;
  CHECK(forward() == 1);
  taken.call.microbatch = 1;
  taken.call.step = 1;
  CHECK(forward() == 1);
  taken.call.step = 0;
  taken.inputs.data = taken.in.data() + 1; // shifted
  taken.inputs.bytes = 36;
  CHECK(forward() == 1);
  taken.inputs = {taken.in.data(), 37};
  Stage five(5);
  CHECK(five.module.forward(five.instance, &taken.call, &five.error) == 1);
}

TEST_CASE("runtime: synthetic notices that its state was written to",
          "[runtime][synthetic]") {
  Stage stage;
  CHECK(stage.module.optimizer_step(stage.instance, 0, nullptr, nullptr,
                                    &stage.error) == 0);
  const char *names[] = {"parameters", "gradients", "optimizer"};
  for (size_t i = 0; i < 3; ++i) {
    stage.memory[i][39] ^= 4;
    CHECK(stage.module.optimizer_step(stage.instance, 0, nullptr, nullptr,
                                      &stage.error) == 1);
    const std::string message = stage.error.message;
    CHECK(message.substr(0, message.find(" is 0x")) ==
          "buffer " + std::string(names[i]) +
              " from stage 3 for stage 3, microbatch 0: byte 39 of 40");
    stage.memory[i][39] ^= 4;
  }
}

TEST_CASE("runtime: synthetic notices whose tied gradients a step is given",
          "[runtime][synthetic]") {
  Stage stage(3, 0, 5), other(5, 0, 3), stranger(6, 0, 3);
  auto step = [&](const sluice_buffer *tied) {
    return stage.module.optimizer_step(stage.instance, 0, tied, nullptr,
                                       &stage.error);
  };
  auto partOf = [](Stage &of) {
    return sluice_buffer{of.memory[1].data(), 16};
  };
  const sluice_buffer right = partOf(other), wrong = partOf(stranger);
  CHECK(step(&right) == 0);
  CHECK(step(&wrong) == 1);
  CHECK(std::string(stage.error.message)
            .starts_with("buffer tied gradients from stage 5 for stage 5"));
  CHECK(step(nullptr) == 1);
  CHECK(std::string(stage.error.message) ==
        "the step gets no gradients of stage 5, which its stage is tied to");
  other.memory[1][3] ^= 1;
  CHECK(step(&right) == 1);
}

TEST_CASE("runtime: synthetic steps with the sum of all ranks only",
          "[runtime][synthetic]") {
  Stage stage(3, 0, SLUICE_NO_STAGE, 3);
  const auto step = [&] {
    return stage.module.optimizer_step(stage.instance, 0, nullptr, nullptr,
                                       &stage.error);
  };
  std::array<float, 10> own = {}, sum = {};
  std::memcpy(own.data(), stage.memory[1].data(), 40);
  CHECK(step() == 1); // its own part alone
  CHECK(std::string(stage.error.message)
            .starts_with("buffer gradients from stage 3 for stage 3"));
  for (const int ranks : {1, 2, 3, 4}) {
    for (size_t i = 0; i < own.size(); ++i)
      sum[i] = ranks == 1 ? own[i] : sum[i] + own[i];
    std::memcpy(stage.memory[1].data(), sum.data(), 40);
    INFO(ranks);
    CHECK(step() == (ranks == 3 ? 0 : 1));
  }
  // The next step begins with its own part.
  REQUIRE(stage.module.begin_step(stage.instance, 1, &stage.error) == 0);
  CHECK(std::memcmp(stage.memory[1].data(), own.data(), 40) == 0);
}

TEST_CASE("runtime: synthetic spends no less than its time",
          "[runtime][synthetic]") {
  Stage stage(3, 0.003);
  Call call(0);
  call.inputs.bytes = 0;
  using Clock = std::chrono::steady_clock;
  const Clock::time_point start = Clock::now();
  REQUIRE(stage.module.forward(stage.instance, &call.call, &stage.error) == 0);
  const std::chrono::duration<double> taken = Clock::now() - start;
  CHECK(taken.count() >= 0.003); // the module's contract, on any machine
}

TEST_CASE("runtime: synthetic looks at parts of a large buffer",
          "[runtime][synthetic]") {
  const size_t size = GENERATE(16384, 16385, 1000003, size_t(8) << 20);
  Stage two(2), three(3);
  std::vector<unsigned char> memory(size, 0xee);
  Call from(0), to(0);
  from.inputs.bytes = 0;
  from.outputs = to.inputs = {memory.data(), size};
  REQUIRE(two.module.forward(two.instance, &from.call, &two.error) == 0);
  const auto read = [&] {
    return three.module.forward(three.instance, &to.call, &three.error);
  };
  CHECK(read() == 0);
  for (const size_t at : {size_t(0), size_t(63), size - 1, size - 57}) {
    memory[at] ^= 1;
    CHECK(read() == 1);
    CHECK(std::string(three.error.message)
              .find("byte " + std::to_string(at) + " of " +
                    std::to_string(size)) != std::string::npos);
    memory[at] ^= 1;
  }
  const auto untouched = std::count(memory.begin(), memory.end(), 0xee);
  if (size > 16384)
    CHECK(static_cast<size_t>(untouched) >= size - 65 * 64);
}

TEST_CASE("runtime: synthetic steps one part, and finds the others gathered",
          "[runtime][synthetic]") {
  Stage stage(3, 0, SLUICE_NO_STAGE, 3, 2);
  const auto step = [&] {
    return stage.module.optimizer_step(stage.instance, 0, nullptr, nullptr,
                                       &stage.error);
  };
  std::array<float, 5> own = {}, sum = {}; // of the second part
  std::memcpy(own.data(), stage.memory[1].data() + 20, 20);
  CHECK(step() == 1); // its own gradients alone
  for (size_t i = 0; i < own.size(); ++i)
    sum[i] = own[i] + own[i] + own[i];
  const auto reduce = [&] {
    std::memcpy(stage.memory[1].data() + 20, sum.data(), 20);
  };
  reduce();
  stage.memory[1][0] ^= 1; // of the first part nothing is known
  const Memory before = stage.memory[0];
  REQUIRE(step() == 0);
  CHECK(
      std::equal(before.begin(), before.begin() + 20, stage.memory[0].begin()));
  CHECK(!std::equal(before.begin() + 20, before.end(),
                    stage.memory[0].begin() + 20));
  REQUIRE(stage.module.begin_step(stage.instance, 1, &stage.error) == 0);
  reduce();
  CHECK(step() == 1); // nobody has gathered the other part
  CHECK(std::string(stage.error.message)
            .starts_with("buffer parameters from stage 3 for stage 3, "
                         "microbatch 0: byte 0 of 20"));
}
