//===- tests/runtime/WeightsTest.cpp - Weights in canonical order --------===//
#include "runtime/Weights.h"

#include "runtime/Job.h"
#include "runtime/modules/synthetic/Synthetic.h"
#include "tests/Catch.h"
#include "tests/runtime/HookedModule.h"
#include "tests/runtime/PlanForTests.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

using namespace sluice;
using namespace sluice::runtime;
using namespace sluice::tests;

namespace {

/// A folder that goes when the test ends.
struct TemporaryFolder {
  TemporaryFolder() {
    std::string name =
        (std::filesystem::temp_directory_path() / "sluice-XXXXXX").string();
    REQUIRE(mkdtemp(name.data()) != nullptr);
    path = name;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
  TemporaryFolder(const TemporaryFolder &) = delete;
  TemporaryFolder &operator=(const TemporaryFolder &) = delete;
  std::filesystem::path path;
};

/// Notes what it is given.
struct Notes final : WeightsSink {
  Status begin(uint64_t count) override {
    text += "begin " + std::to_string(count) + "\n";
    return {};
  }
  Status tensor(const sluice_tensor &tensor) override {
    text += std::to_string(tensor.position) + " " + tensor.name + " " +
            std::to_string(tensor.bytes) + "\n";
    return std::string(tensor.name) == failAt
               ? Status::environment("the disk is full")
               : Status();
  }
  Status end() override {
    text += "end\n";
    return {};
  }
  std::string text;
  std::string failAt;
};

} // namespace

static std::string contentOf(const std::filesystem::path &path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

static Status run(const Plan &plan, WeightsSink &sink) {
  JobOptions options;
  options.module = hookedModule();
  options.timeoutSeconds = 20;
  JobResult result;
  return runJob(plan, options, result, &sink);
}

TEST_CASE("runtime: weights are visited in order of their position",
          "[runtime][weights]") {
  WithHooks hooks({.tensors = true});
  Notes notes;
  REQUIRE(run(makeChain({.ranks = 2}), notes).ok());
  CHECK(notes.text == "begin 4\n"
                      "0 stage.0.first 48\n"
                      "1 stage.0.second 48\n"
                      "2 stage.1.first 48\n"
                      "3 stage.1.second 48\n"
                      "end\n");
  notes.text.clear();
  notes.failAt = "stage.0.second";
  const Status failed = run(makeChain({.ranks = 2}), notes);
  CHECK(failed.message() == "the disk is full");
  CHECK(notes.text == "begin 4\n0 stage.0.first 48\n1 stage.0.second 48\n");
}

TEST_CASE("runtime: copies of a tensor must be equal", "[runtime][weights]") {
  WithHooks hooks({.tensors = true, .sameTensors = true});
  Notes notes;
  // Synthetic parameters differ from stage to stage.
  const Status differ = run(makeChain({.ranks = 2}), notes);
  CHECK(differ.fault() == Fault::Environment);
  CHECK(differ.message() == "the copies of tensor stage.0.first differ");
  CHECK(notes.text.empty());
  ChainOptions empty;
  empty.state = 0;
  REQUIRE(run(makeChain(empty), notes).ok());
  CHECK(notes.text == "begin 2\n0 stage.0.first 0\n1 stage.0.second 0\nend\n");
}

TEST_CASE("runtime: a weights file is these bytes", "[runtime][weights]") {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder.path / "weights";
  WeightsFile file(path.string());
  char first[] = {1, 2, 3};
  REQUIRE(file.begin(2).ok());
  REQUIRE(file.tensor({"ab", 0, first, 3}).ok());
  CHECK_FALSE(std::filesystem::exists(path)); // not before it is complete
  REQUIRE(file.tensor({"c", 1, first, 0}).ok());
  REQUIRE(file.end().ok());
  using namespace std::string_literals;
  CHECK(contentOf(path) == "SLUICEWT"s + "\1\0\0\0"s + "\2\0\0\0\0\0\0\0"s +
                               "\2\0\0\0ab"s + "\3\0\0\0\0\0\0\0\1\2\3"s +
                               "\1\0\0\0c"s + "\0\0\0\0\0\0\0\0"s);
}

TEST_CASE("runtime: weights files do not depend on the schedule",
          "[runtime][weights]") {
  const TemporaryFolder folder;
  WithHooks hooks({.tensors = true});
  std::vector<std::string> contents;
  for (const bool gpipe : {false, true}) {
    const std::filesystem::path path = folder.path / std::to_string(gpipe);
    WeightsFile file(path.string());
    REQUIRE(run(makeChain({.ranks = 3, .gpipe = gpipe}), file).ok());
    contents.push_back(contentOf(path));
  }
  CHECK(contents[0].size() == 20 + 3 * (2 * (4 + 8 + 48) + 13 + 14));
  CHECK(contents[0] == contents[1]);
}

TEST_CASE("runtime: a job that fails leaves no weights file",
          "[runtime][weights]") {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder.path / "weights";
  WithHooks hooks({.before =
                       [](std::string_view name, Id, const sluice_call *,
                          sluice_error *error) {
                         return name == "optimizer_step"
                                    ? failWith(error, "not a number")
                                    : 0;
                       },
                   .tensors = true});
  WeightsFile file(path.string());
  CHECK(run(makeChain({.ranks = 1}), file).message() ==
        "rank 0 failed at 0STEP (chain.yaml:10) of step 0: not a number");
  CHECK(std::filesystem::is_empty(folder.path));
}
