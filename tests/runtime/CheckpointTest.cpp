//===- tests/runtime/CheckpointTest.cpp - Files of checkpoints ------------===//
#include "runtime/Checkpoint.h"

#include "runtime/CheckpointFiles.h"
#include "tests/Catch.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <numeric>

using namespace sluice;
using namespace sluice::runtime;

namespace {

struct Folder {
  Folder() {
    std::string name =
        (std::filesystem::temp_directory_path() / "sluice-XXXXXX").string();
    REQUIRE(mkdtemp(name.data()) != nullptr);
    path = name;
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
  Folder(const Folder &) = delete;
  Folder &operator=(const Folder &) = delete;
  std::string path;
};

/// Two tensors, the second with two states.
struct Tensors {
  Tensors() {
    std::iota(std::begin(bytes), std::end(bytes), uint8_t(1));
    sluice_tensor first = {}, second = {};
    first.name = "first";
    first.data = bytes;
    first.bytes = 5;
    second.name = "second";
    second.position = 1;
    second.data = bytes + 8;
    second.bytes = 4;
    second.states[0] = {bytes + 16, 4};
    second.states[1] = {bytes + 24, 0};
    second.state_count = 2;
    list = {first, second};
  }
  uint8_t bytes[32];
  std::vector<sluice_tensor> list;
};

} // namespace

static std::string contentOf(const std::string &path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

static void write(const std::string &path, std::string_view content) {
  std::ofstream(path, std::ios::binary) << content;
}

TEST_CASE("runtime: what a checkpoint's part holds is found by name",
          "[runtime][checkpoint]") {
  Folder folder;
  Tensors written;
  CheckpointWriter writer(folder.path, 1);
  REQUIRE(writer.prepare().ok());
  REQUIRE(writer.write(7, 0, written.list).ok());
  std::optional<FoundCheckpoint> found;
  std::vector<std::string> skipped;
  REQUIRE(findCheckpoint(folder.path, found, skipped).ok());
  CHECK(!found); // it has no name yet
  REQUIRE(writer.complete(7).ok());
  REQUIRE(findCheckpoint(folder.path, found, skipped).ok());
  REQUIRE(found);
  CHECK(found->steps == 7);
  CHECK(skipped.empty());

  CheckpointReader reader;
  REQUIRE(reader.open(*found).ok());
  Tensors read;
  std::fill(std::begin(read.bytes), std::end(read.bytes), uint8_t(0));
  REQUIRE(reader.read(std::span(read.list).subspan(1)).ok());
  CHECK(read.bytes[0] == 0);
  REQUIRE(reader.read(read.list).ok());
  for (size_t i : {0, 1, 2, 3, 4, 8, 9, 10, 11, 16, 17, 18, 19})
    CHECK(read.bytes[i] == written.bytes[i]);

  read.list[1].state_count = 1;
  CHECK(reader.read(read.list).message().ends_with(
      "is of another model: tensor second has 2 states of an optimizer there, "
      "1 here"));
  read.list[1].state_count = 2;
  read.list[1].states[0].bytes = 3;
  CHECK(reader.read(read.list).message().ends_with(
      "tensor second has 4 bytes there, 3 here"));
  read.list[1].name = "third";
  Status missing = reader.read(read.list);
  CHECK(missing.fault() == Fault::Input);
  CHECK(missing.message().ends_with("tensor third is not in it"));
}

TEST_CASE("runtime: no change of a part's bytes is trusted",
          "[runtime][checkpoint]") {
  Folder folder;
  const std::string path = partPath(folder.path, 0);
  REQUIRE(writePart(path, Tensors().list).ok());
  ContentHash hash;
  REQUIRE(readPartHash(path, hash).ok());
  REQUIRE(checkPart(path, hash).ok());
  const std::string good = contentOf(path);
  auto tryContent = [&](const std::string &content) {
    write(path, content);
    CHECK(!checkPart(path, hash).ok());
    // Even unchecked, what a list says lies within the file.
    std::vector<PartEntry> entries;
    if (readPartList(path, entries).ok())
      for (const PartEntry &entry : entries)
        for (auto [offset, bytes] : entry.ranges)
          CHECK((offset <= content.size() && bytes <= content.size() - offset));
  };
  for (size_t at = 0; at < good.size(); ++at) {
    tryContent(good.substr(0, at));
    for (int value : {0, 1, 0x7f, 0xff})
      if (std::string changed = good; changed[at] != static_cast<char>(value)) {
        changed[at] = static_cast<char>(value);
        tryContent(changed);
      }
  }
  tryContent(good + good);
}

TEST_CASE("runtime: the list of a checkpoint's parts is exact",
          "[runtime][checkpoint]") {
  Folder folder;
  CheckpointList list{12, {ContentHash{1, 2, 0xff}, ContentHash{}}};
  REQUIRE(writeList(folder.path, list).ok());
  CheckpointList read;
  REQUIRE(readList(folder.path, read).ok());
  CHECK(read.steps == 12);
  CHECK(read.parts == list.parts);
  const std::string path = folder.path + "/checkpoint";
  const std::string good = contentOf(path);
  CHECK(good == "sluice checkpoint 1\nsteps 12\nparts 2\n"
                "0102ff00000000000000000000000000\n"
                "00000000000000000000000000000000\n");
  for (size_t at = 0; at < good.size(); ++at) {
    write(path, good.substr(0, at));
    CHECK(!readList(folder.path, read).ok());
    std::string changed = good;
    changed[at] = changed[at] == '+' ? '-' : '+';
    write(path, changed);
    CHECK(!readList(folder.path, read).ok());
  }
  write(path, good + "\n");
  CHECK(!readList(folder.path, read).ok());
}

TEST_CASE("runtime: what is no checkpoint is left alone",
          "[runtime][checkpoint]") {
  Folder folder;
  for (const char *name : {"step-", "step-01", "step--1", "step-1x", "other",
                           "step-99999999999999999999"})
    std::filesystem::create_directory(folder.path + "/" + name);
  std::optional<FoundCheckpoint> found;
  std::vector<std::string> skipped;
  REQUIRE(findCheckpoint(folder.path, found, skipped).ok());
  CHECK(!found);
  CHECK(skipped.empty());
  REQUIRE(CheckpointWriter(folder.path, 1).prepare().ok());
  CHECK(std::distance(std::filesystem::directory_iterator(folder.path), {}) ==
        6);
  REQUIRE(findCheckpoint(folder.path + "/none", found, skipped).ok());
  CHECK(!found);
}
