#include "ir/PlanFile.h"
#include "ir/AsideFile.h"
#include "tests/Catch.h"
#include "tests/ir/PlanFilePlans.h"

#include <csignal>
#include <cstring>
#include <filesystem>

#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

using namespace sluice;
using namespace sluice::testing;

/// The content hash in hexadecimal, from where the format has it.
static std::string contentHash(const std::string &path) {
  const std::string file = readFile(path);
  uint32_t sections = 0;
  std::memcpy(&sections, file.data() + 12, sizeof sections);
  std::string hash;
  for (unsigned char byte : file.substr(16 + 32 * size_t(sections), 16)) {
    hash += "0123456789abcdef"[byte >> 4];
    hash += "0123456789abcdef"[byte & 15];
  }
  return hash;
}

TEST_CASE("plan file: what was written is read again") {
  TemporaryFolder folder;
  std::mt19937_64 random(1);
  for (int i = 0; i < 300; ++i) {
    Plan plan = i == 0 ? smallPlan() : randomPlan(random);
    REQUIRE(writePlanFile(plan, folder.file("a.plan")).message() == "");
    Plan again;
    REQUIRE(readPlanFile(folder.file("a.plan"), again).message() == "");
    REQUIRE(textOf(again) == textOf(plan));
    CHECK(isPlanFile(readFile(folder.file("a.plan")).substr(0, 8)));
  }
  CHECK(folder.contents() == "a.plan");
}

TEST_CASE("plan file: equal plans give equal bytes and hashes") {
  TemporaryFolder folder;
  Plan plan = smallPlan();
  REQUIRE(writePlanFile(plan, folder.file("a.plan")).ok());
  REQUIRE(writePlanFile(smallPlan(), folder.file("b.plan")).ok());
  plan.ranks[1].waits[0] = 0;
  plan.ranks[1].arenaBytes += 1;
  REQUIRE(writePlanFile(plan, folder.file("c.plan")).ok());
  CHECK(readFile(folder.file("a.plan")) == readFile(folder.file("b.plan")));
  CHECK(contentHash(folder.file("a.plan")) ==
        contentHash(folder.file("b.plan")));
  CHECK(contentHash(folder.file("a.plan")) !=
        contentHash(folder.file("c.plan")));
  // What tells of it agrees with where the format has it.
  std::string ofFile, ofPlan;
  REQUIRE(planFileHash(folder.file("a.plan"), ofFile).ok());
  REQUIRE(planHash(smallPlan(), ofPlan).ok());
  CHECK(ofFile == contentHash(folder.file("a.plan")));
  CHECK(ofPlan == ofFile);
  CHECK(planFileHash(folder.file("none.plan"), ofFile).fault() == Fault::Input);
}

TEST_CASE("plan file: a header is read alone") {
  TemporaryFolder folder;
  const Plan plan = smallPlan();
  REQUIRE(writePlanFile(plan, folder.file("a.plan")).ok());
  Plan header;
  REQUIRE(readPlanFileHeader(folder.file("a.plan"), header).ok());
  REQUIRE(header.ranks.size() == plan.ranks.size());
  CHECK(header.stages.size() == plan.stages.size());
  for (const RankPlan &rank : header.ranks)
    CHECK(rank.ops.empty());
}

// The small plan has every operation, kind of buffer and access, so this moves
// with the schema, the table and the numbers behind the names. Whoever changes
// the hash changes the version with it.
TEST_CASE("plan file: the format moves only with its version") {
  TemporaryFolder folder;
  REQUIRE(writePlanFile(smallPlan(), folder.file("a.plan")).ok());
  std::string hash = contentHash(folder.file("a.plan"));
  std::string version =
      std::to_string(kPlanFileMajor) + "." + std::to_string(kPlanFileMinor);
  CHECK(version + " " + hash == "9.0 1045a51d7ac553eb2b8377211d2af702");
}

TEST_CASE("plan file: a rank reads its own section only") {
  TemporaryFolder folder;
  Plan plan = smallPlan();
  std::string path = folder.file("a.plan");
  REQUIRE(writePlanFile(plan, path).ok());

  std::string bytes = readFile(path);
  bytes.back() ^= 1; // rank 1 is the last section
  writeFile(path, bytes);
  Plan read;
  REQUIRE(readPlanFileRank(path, 0, read).message() == "");
  Plan expected = plan;
  expected.ranks[1] = {};
  CHECK(textOf(read) == textOf(expected));
  CHECK(readPlanFileRank(path, 1, read).message() ==
        path + ": plan file is altered: the section of rank 1 does not match "
               "its hash");
  CHECK(readPlanFileRank(path, 2, read).message() ==
        path + ": plan is for 2 ranks, there is no rank 2");
  CHECK(textOf(read) == textOf(expected));
}

TEST_CASE("plan file: what cannot be opened is the input's fault") {
  TemporaryFolder folder;
  Plan plan;
  std::string missing = folder.file("no.plan");
  Status status = readPlanFile(missing, plan);
  CHECK(status.fault() == Fault::Input);
  CHECK(status.message() ==
        "cannot open " + missing + ": No such file or directory");
  CHECK(readPlanFile(folder.path, plan).message() ==
        folder.path + ": is not a regular file");
  CHECK(readPlanFile("/dev/zero", plan).message() ==
        "/dev/zero: is not a regular file");
}

TEST_CASE("plan file: a failed write leaves the old file and nothing else") {
  TemporaryFolder folder;
  std::string path = folder.file("a.plan");
  writeFile(path, "old");

  SECTION("the file system is full") {
    // A limit on the size of files fails as a full disk does: in the middle.
    std::signal(SIGXFSZ, SIG_IGN);
    rlimit before = {};
    REQUIRE(getrlimit(RLIMIT_FSIZE, &before) == 0);
    rlimit small = {256, before.rlim_max};
    REQUIRE(setrlimit(RLIMIT_FSIZE, &small) == 0);
    Status status = writePlanFile(smallPlan(), path);
    REQUIRE(setrlimit(RLIMIT_FSIZE, &before) == 0);
    std::signal(SIGXFSZ, SIG_DFL);
    CHECK(status.fault() == Fault::Environment);
    CHECK(status.message() == "cannot write " + path + ": File too large");
  }
  SECTION("a folder has the name") {
    Status status = writePlanFile(smallPlan(), folder.path);
    CHECK(status.fault() == Fault::Environment);
    CHECK(status.message() ==
          "cannot write " + folder.path + ": Is a directory");
  }
  SECTION("there is no such folder") {
    std::string nowhere = folder.file("no/a.plan");
    CHECK(writePlanFile(smallPlan(), nowhere).message() ==
          "cannot write " + nowhere + ": No such file or directory");
  }
  SECTION("nobody may write there") {
    CHECK(writePlanFile(smallPlan(), "/proc/version").message() ==
          "cannot write /proc/version: " +
              std::string(::geteuid() == 0 ? "No such file or directory"
                                           : "Permission denied"));
  }
  SECTION("it is given up before the end") {
    for (auto neighbour : {AsideFile::Neighbour::NamelessIfPossible,
                           AsideFile::Neighbour::Named}) {
      AsideFile file;
      REQUIRE(file.open(path, neighbour).ok());
      REQUIRE(file.append("new", 3).ok());
    }
  }
  SECTION("the process ends without destructors") {
    AsideFile file;
    REQUIRE(file.open(path, AsideFile::Neighbour::Named).ok());
    REQUIRE(file.append("new", 3).ok());
    CHECK(folder.contents() != "a.plan");
    dropAsideFiles();
    CHECK(folder.contents() == "a.plan");
    CHECK(file.commit().fault() == Fault::Environment);
  }
  CHECK(readFile(path) == "old");
  CHECK(folder.contents() == "a.plan");
}

TEST_CASE("plan file: a write keeps links, modes and devices") {
  TemporaryFolder folder;
  std::string path = folder.file("a.plan");
  writeFile(path, "old");
  REQUIRE(::chmod(path.c_str(), 0640) == 0);
  REQUIRE(::symlink("a.plan", folder.file("link").c_str()) == 0);
  REQUIRE(writePlanFile(smallPlan(), folder.file("link")).message() == "");
  CHECK(std::filesystem::is_symlink(folder.file("link")));
  CHECK(isPlanFile(readFile(path)));
  struct stat about = {};
  REQUIRE(::stat(path.c_str(), &about) == 0);
  CHECK((about.st_mode & 0777) == 0640);

  REQUIRE(writePlanFile(smallPlan(), "/dev/null").message() == "");
  CHECK(std::filesystem::is_character_file("/dev/null"));
  Status full = writePlanFile(smallPlan(), "/dev/full");
  CHECK(full.fault() == Fault::Environment);
  CHECK(full.message() == "cannot write /dev/full: No space left on device");
}

TEST_CASE("aside file: with a name and without, a file comes whole") {
  TemporaryFolder folder;
  for (auto neighbour :
       {AsideFile::Neighbour::NamelessIfPossible, AsideFile::Neighbour::Named})
    for (const char *text : {"first", "second"}) { // new, then replaced
      AsideFile file;
      REQUIRE(file.open(folder.file("a"), neighbour).ok());
      REQUIRE(file.append(text, 5).ok());
      CHECK(file.commit().message() == "");
      CHECK(readFile(folder.file("a")) == std::string(text).substr(0, 5));
      CHECK(folder.contents() == "a");
    }
}

TEST_CASE("aside file: a link to what is not there yet is followed") {
  TemporaryFolder folder;
  REQUIRE(::symlink("b", folder.file("a").c_str()) == 0);
  CHECK(followLinks(folder.file("a")) == folder.path + "//b");
  CHECK(tryToWrite(folder.file("a")).ok());
  CHECK(folder.contents() == "a");
  REQUIRE(writeFileAside(folder.file("a"), "text").ok());
  CHECK(std::filesystem::is_symlink(folder.file("a")));
  CHECK(readFile(folder.file("b")) == "text");
}

TEST_CASE("plan file: a section of 2 GiB is refused before it is made",
          "[.large]") {
  Plan plan = smallPlan();
  plan.ranks[1].waits.resize(size_t(1) << 29);
  TemporaryFolder folder;
  Status status = writePlanFile(plan, folder.file("a.plan"));
  CHECK(status.fault() == Fault::Input);
  CHECK(status.message().starts_with("rank 1 takes up to 21474"));
  CHECK(folder.contents() == "");
}
