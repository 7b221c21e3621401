#include "ir/PlanFile.h"
#include "tests/Catch.h"
#include "tests/ir/PlanFilePlans.h"

#include <cstring>

#include <sys/mman.h>
#include <unistd.h>

using namespace sluice;
using namespace sluice::testing;

namespace {

/// A file in memory that can be changed and read quickly.
class MemoryFile {
public:
  MemoryFile() : file(::memfd_create("plan", MFD_CLOEXEC)) {
    path = "/proc/self/fd/" + std::to_string(file);
  }
  MemoryFile(const MemoryFile &) = delete;
  MemoryFile &operator=(const MemoryFile &) = delete;
  ~MemoryFile() { ::close(file); }

  /// The message of the reader for `bytes`; empty if it takes them.
  std::string read(const std::string &bytes) {
    Plan plan;
    return read(bytes, plan);
  }
  std::string read(const std::string &bytes, Plan &plan) {
    bool written = ::ftruncate(file, 0) == 0 &&
                   ::pwrite(file, bytes.data(), bytes.size(), 0) ==
                       static_cast<ssize_t>(bytes.size());
    REQUIRE(written);
    Status status = readPlanFile(path, plan);
    if (status.ok())
      return "";
    REQUIRE(status.fault() == Fault::Input);
    REQUIRE(status.message().starts_with(path + ": "));
    return status.message().substr(path.size() + 2);
  }

private:
  int file;
  std::string path;
};

std::string bytesOf(const Plan &plan) {
  TemporaryFolder folder;
  REQUIRE(writePlanFile(plan, folder.file("a.plan")).message() == "");
  return readFile(folder.file("a.plan"));
}

/// Offset and size of a section: 0 is the header.
std::pair<uint64_t, uint64_t> sectionOf(const std::string &file, size_t index) {
  uint64_t place[2];
  std::memcpy(place, file.data() + 16 + 32 * index, sizeof place);
  return {place[0], place[1]};
}

} // namespace

TEST_CASE("plan file: one flipped bit anywhere is refused") {
  MemoryFile file;
  std::string bytes = bytesOf(smallPlan());
  REQUIRE(file.read(bytes) == "");
  for (size_t i = 0; i < bytes.size(); ++i)
    for (unsigned bit = 0; bit < 8; ++bit) {
      std::string damaged = bytes;
      damaged[i] ^= static_cast<char>(1u << bit);
      std::string message = file.read(damaged);
      INFO("byte " << i << " bit " << bit << ": " << message);
      bool told = i < 8    ? message == "is not a plan file"
                  : i < 12 ? message.ends_with("this program reads 9.0")
                  : i < 16 ? message.starts_with("plan file is")
                           : message.starts_with("plan file is altered");
      REQUIRE(told);
    }
}

TEST_CASE("plan file: truncation at any length is refused") {
  MemoryFile file;
  std::string bytes = bytesOf(smallPlan());
  for (size_t size = 0; size < bytes.size(); ++size) {
    std::string message = file.read(bytes.substr(0, size));
    std::string at = std::to_string(size);
    INFO(message);
    // 3 sections, so the table ends at 16 + 3 * 32 + 16 = 128 bytes.
    if (size < 8)
      REQUIRE(message == "is not a plan file");
    else if (size < 16)
      REQUIRE(message == "plan file is truncated at " + at + " bytes");
    else if (size < 128)
      REQUIRE(message == "plan file is truncated at " + at +
                             " bytes, its table of 3 sections ends at 128");
    else
      REQUIRE(message == "plan file is truncated at " + at + " of " +
                             std::to_string(bytes.size()) + " bytes");
  }
}

TEST_CASE("plan file: bytes after the end are refused") {
  MemoryFile file;
  std::string bytes = bytesOf(smallPlan());
  CHECK(file.read(bytes + "\n") == "plan file has 1 bytes after its end");
}

TEST_CASE("plan file: another version is refused with both numbers") {
  MemoryFile file;
  auto withVersion = [](char major, char minor) {
    std::string bytes = bytesOf(smallPlan());
    bytes[8] = major;
    bytes[10] = minor;
    repairHashes(bytes);
    return bytes;
  };
  CHECK(file.read(withVersion(9, 0)) == "");
  CHECK(file.read(withVersion(10, 0)) ==
        "plan file has version 10.0, this program reads 9.0");
  CHECK(file.read(withVersion(9, 1)) ==
        "plan file has version 9.1, this program reads 9.0");
  CHECK(file.read(withVersion(8, 9)) ==
        "plan file has version 8.9, this program reads 9.0");
}

TEST_CASE("plan file: a table that lies is refused though its hash is right") {
  MemoryFile file;
  std::string bytes = bytesOf(smallPlan());
  SECTION("no sections") {
    std::memset(bytes.data() + 12, 0, 4);
    repairHashes(bytes);
    CHECK(file.read(bytes) == "plan file has no ranks");
  }
  SECTION("four thousand million sections") {
    std::memset(bytes.data() + 12, 0xff, 4);
    CHECK(file.read(bytes) ==
          "plan file is truncated at " + std::to_string(bytes.size()) +
              " bytes, its table of 4294967295 sections ends at 137438953472");
  }
  SECTION("sections that share bytes") {
    std::memcpy(bytes.data() + 16 + 64, bytes.data() + 16 + 32, 16);
    repairHashes(bytes);
    auto [offset, size] = sectionOf(bytes, 1);
    CHECK(file.read(bytes) == "plan file is malformed: section 2 takes " +
                                  std::to_string(size) + " bytes at offset " +
                                  std::to_string(offset));
  }
  SECTION("a size beyond all files") {
    std::memset(bytes.data() + 16 + 64 + 8, 0xf8, 8);
    repairHashes(bytes);
    CHECK(file.read(bytes) ==
          "plan file is malformed: section 2 takes 17940362863843014904 bytes "
          "at offset " +
              std::to_string(sectionOf(bytes, 2).first));
  }
  SECTION("a section of another kind") {
    auto [offset, size] = sectionOf(bytes, 1);
    std::memset(bytes.data() + offset, 0, size);
    repairHashes(bytes);
    CHECK(file.read(bytes) ==
          "plan file is malformed: the section of rank 0 is not one");
  }
}

TEST_CASE(
    "plan file: numbers out of range are refused though hashes are right") {
  MemoryFile file;
  Plan plan = smallPlan();
  plan.ranks[0].ops[4].stage = 7;
  CHECK(file.read(bytesOf(plan)) ==
        "plan file is malformed: rank 0, operation 4 (7I2) belongs to stage "
        "7, but there are 2");
  plan = smallPlan();
  plan.edges[0].to = 9;
  CHECK(file.read(bytesOf(plan)) == "plan file is malformed: the edge 0 -> 9 "
                                    "names stage 9, but there are 2");
}

// One string that many entries share must not be copied for each of them.
TEST_CASE("plan file: strings that share bytes do not multiply") {
  MemoryFile file;
  Plan plan = smallPlan();
  plan.ranks.resize(1);
  plan.channels.clear();
  plan.collectives.clear();
  plan.warmup.clear();
  RankPlan &rank = plan.ranks[0];
  rank = {};
  rank.streams.assign(200, "a name of some length that is not at all short");
  std::string bytes = bytesOf(plan);
  auto [offset, size] = sectionOf(bytes, 1);
  // The vector of streams: its length, then for each the distance to its
  // string. The first entry in the file is the place of the vector.
  uint32_t count = 200;
  size_t vector = bytes.find(
      std::string(reinterpret_cast<const char *>(&count), 4), offset);
  REQUIRE(vector != std::string::npos);
  uint32_t first = 0;
  std::memcpy(&first, bytes.data() + vector + 4, 4);
  for (uint32_t i = 0; i < count; ++i) {
    uint32_t distance = first - 4 * i;
    std::memcpy(bytes.data() + vector + 4 + 4 * i, &distance, 4);
  }
  SECTION("the same name for each is fine") {
    repairHashes(bytes);
    Plan read;
    CHECK(file.read(bytes, read) == "");
    CHECK(textOf(read) == textOf(plan));
  }
  SECTION("a name as long as the section is not") {
    uint32_t length = 0;
    size_t string = vector + 4 + first;
    std::memcpy(&length, bytes.data() + string, 4);
    REQUIRE(length == rank.streams[0].size());
    length = static_cast<uint32_t>(length * 3 + 8);
    while (bytes[string + 4 + length] != 0) // where another one ends
      ++length;
    std::memcpy(bytes.data() + string, &length, 4);
    repairHashes(bytes);
    CHECK(file.read(bytes) ==
          "plan file is malformed: the section of rank 0 is not one");
  }
  (void)size;
}

TEST_CASE("plan file: mutated plans with right hashes never fool the reader") {
  MemoryFile file;
  std::mt19937_64 random(7);
  unsigned accepted = 0, refused = 0;
  for (int round = 0; round < 400; ++round) {
    std::string bytes = bytesOf(round == 0 ? smallPlan() : randomPlan(random));
    for (int i = 0; i < 40; ++i) {
      std::string mutated = bytes;
      for (uint64_t flips = 1 + random() % 4; flips > 0; --flips) {
        size_t at = 12 + random() % (mutated.size() - 12);
        mutated[at] = random() % 2 != 0 ? static_cast<char>(random())
                                        : static_cast<char>(mutated[at] + 1);
      }
      repairHashes(mutated);
      Plan plan;
      if (!file.read(mutated, plan).empty()) {
        ++refused;
        continue;
      }
      ++accepted;
      REQUIRE(!textOf(plan).empty()); // walks every index
      for (Id rank = 0; rank < plan.ranks.size(); ++rank)
        REQUIRE(checkStructure(plan, rank).ok());
    }
  }
  // Both happen: sizes and times may change, indexes may not.
  CHECK(accepted > 1000);
  CHECK(refused > 1000);
}
