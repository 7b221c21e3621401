//===- tests/runtime/LaunchTest.cpp - Who a process is -------------------===//
#include "runtime/Launch.h"

#include "tests/Catch.h"

#include <map>

using namespace sluice;
using namespace sluice::runtime;

using Variables = std::map<std::string, std::string>;

/// `variables` must outlive it.
static Environment environmentOf(const Variables &variables) {
  return [&](const char *name) -> const char * {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  };
}

static Status detect(const Variables &variables, Launch &launch) {
  return detectLaunch(environmentOf(variables), launch);
}

static Launch detected(const Variables &variables) {
  Launch launch;
  const Status status = detect(variables, launch);
  INFO(status.message());
  REQUIRE(status.ok());
  return launch;
}

/// What is refused, without the words that all have in common.
static std::string refused(const Variables &variables) {
  Launch launch;
  launch.rank = 77;
  const Status status = detect(variables, launch);
  CHECK(status.fault() == Fault::Environment);
  CHECK(launch.rank == 77);
  const std::string &text = status.message();
  const std::string tail =
      "; start with a launcher, or unset its variables to run in one process";
  REQUIRE(text.ends_with(tail));
  return text.substr(0, text.size() - tail.size());
}

static const Variables kTorchrun = {
    {"RANK", "5"},         {"LOCAL_RANK", "1"},
    {"WORLD_SIZE", "8"},   {"LOCAL_WORLD_SIZE", "4"},
    {"MASTER_ADDR", "h0"}, {"MASTER_PORT", "29500"}};
static const Variables kOpenMpi = {{"OMPI_COMM_WORLD_RANK", "3"},
                                   {"OMPI_COMM_WORLD_SIZE", "4"},
                                   {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                                   {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}};
static const Variables kSlurm = {{"SLURM_PROCID", "6"},
                                 {"SLURM_LOCALID", "2"},
                                 {"SLURM_NTASKS", "12"},
                                 {"SLURM_JOB_NODELIST", "node[003-005,7],x"}};

static Variables with(Variables variables, const Variables &more) {
  for (const auto &[name, value] : more)
    variables[name] = value;
  return variables;
}
static Variables without(Variables variables, const char *name) {
  variables.erase(name);
  return variables;
}

TEST_CASE("launch: nothing set is one process", "[runtime][launch]") {
  const Launch launch = detected({{"PATH", "/bin"}});
  CHECK(launch.launcher == Launcher::None);
  CHECK(nameOf(launch.launcher).empty());
  CHECK(launch.rank == 0);
  CHECK(launch.size == 1);
}

TEST_CASE("launch: torchrun", "[runtime][launch]") {
  const Launch launch = detected(kTorchrun);
  CHECK(launch.launcher == Launcher::Torchrun);
  CHECK(nameOf(launch.launcher) == "torchrun");
  CHECK(launch.rank == 5);
  CHECK(launch.size == 8);
  CHECK(launch.localRank == 1);
  CHECK(launch.localSize == 4);
  CHECK(launch.address == "h0");
  CHECK(launch.port == 29500);
}

TEST_CASE("launch: Open MPI", "[runtime][launch]") {
  const Launch launch = detected(kOpenMpi);
  CHECK(launch.launcher == Launcher::OpenMpi);
  CHECK(launch.rank == 3);
  CHECK(launch.size == 4);
  CHECK(launch.localRank == 1);
  CHECK(launch.localSize == 2);
  CHECK(launch.address.empty());
  CHECK(launch.port == 0);
}

TEST_CASE("launch: how long Open MPI lets a process live after its signal",
          "[runtime][launch]") {
  const auto left = [](const Variables &variables, Launcher launcher) {
    return secondsAfterSignal(environmentOf(variables), launcher);
  };
  const std::string name = "OMPI_MCA_odls_base_sigkill_timeout";
  CHECK(left({}, Launcher::OpenMpi) == 1 - 0.6);
  CHECK(left({{name, "30"}}, Launcher::OpenMpi) == 30 - 0.6);
  CHECK(left({{name, "0"}}, Launcher::OpenMpi) == 0);
  CHECK(left({{name, "soon"}}, Launcher::OpenMpi) == 1 - 0.6);
  CHECK_FALSE(left({{name, "30"}}, Launcher::Slurm).has_value());
}

TEST_CASE("launch: PMI, with and without a local rank", "[runtime][launch]") {
  const Variables pmi = {{"PMI_RANK", "2"}, {"PMI_SIZE", "4"}};
  const Launch bare = detected(pmi);
  CHECK(bare.launcher == Launcher::Pmi);
  CHECK(bare.rank == 2);
  CHECK(bare.size == 4);
  CHECK(bare.localRank == 2);
  CHECK(detected(with(pmi, {{"MPI_LOCALRANKID", "1"}})).localRank == 1);
}

TEST_CASE("launch: Slurm, with the first host of its list",
          "[runtime][launch]") {
  const Launch launch = detected(kSlurm);
  CHECK(launch.launcher == Launcher::Slurm);
  CHECK(launch.rank == 6);
  CHECK(launch.size == 12);
  CHECK(launch.localRank == 2);
  CHECK(launch.localSize == 0);
  CHECK(launch.address == "node003");
  const std::pair<const char *, const char *> lists[] = {
      {"a", "a"},          {"a,b", "a"},           {"n[1]", "n1"},
      {"n[08-11]", "n08"}, {"n[2,4]-ib", "n2-ib"}, {"n[1-2]x,m", "n1x"},
      {"n[1-", "n1"}};
  for (const auto &[list, first] : lists)
    CHECK(detected(with(kSlurm, {{"SLURM_JOB_NODELIST", list}})).address ==
          first);
}

TEST_CASE("launch: an allocation in which nothing was launched is none",
          "[runtime][launch]") {
  CHECK(detected(without(kSlurm, "SLURM_PROCID")).launcher == Launcher::None);
}

TEST_CASE("launch: the innermost launcher counts", "[runtime][launch]") {
  const Variables both = with(kSlurm, kOpenMpi);
  CHECK(detected(both).launcher == Launcher::OpenMpi);
  CHECK(detected(with(both, kTorchrun)).launcher == Launcher::Torchrun);
  CHECK(
      detected(with(kSlurm, {{"PMI_RANK", "0"}, {"PMI_SIZE", "1"}})).launcher ==
      Launcher::Pmi);
}

TEST_CASE("launch: half of a launcher is refused by the variable's name",
          "[runtime][launch]") {
  CHECK(refused({{"RANK", "0"}}) ==
        "the environment of torchrun is broken: WORLD_SIZE is not set, but "
        "RANK is");
  CHECK(refused({{"WORLD_SIZE", "2"}}) ==
        "the environment of torchrun is broken: RANK is not set, but "
        "WORLD_SIZE is");
  CHECK(refused(without(kTorchrun, "MASTER_PORT")) ==
        "the environment of torchrun is broken: MASTER_PORT is not set, but "
        "RANK is");
  CHECK(refused(with(kTorchrun, {{"MASTER_ADDR", ""}})) ==
        "the environment of torchrun is broken: MASTER_ADDR is empty");
  CHECK(refused(without(kOpenMpi, "OMPI_COMM_WORLD_SIZE")) ==
        "the environment of Open MPI is broken: OMPI_COMM_WORLD_SIZE is not "
        "set, but OMPI_COMM_WORLD_RANK is");
  CHECK(refused(without(kSlurm, "SLURM_LOCALID")) ==
        "the environment of Slurm is broken: SLURM_LOCALID is not set, but "
        "SLURM_PROCID is");
}

TEST_CASE("launch: what is no number in range is refused",
          "[runtime][launch]") {
  const char *const words[] = {"",    " 3",         "3 ",
                               "-1",  "x\n",        "3.0",
                               "0x3", "4294967296", "99999999999999999999"};
  for (const char *word : words)
    CHECK(refused(with(kOpenMpi, {{"OMPI_COMM_WORLD_RANK", word}}))
              .starts_with("the environment of Open MPI is broken: "
                           "OMPI_COMM_WORLD_RANK is '"));
  CHECK(refused(with(kOpenMpi, {{"OMPI_COMM_WORLD_RANK", "x\n"}})) ==
        "the environment of Open MPI is broken: OMPI_COMM_WORLD_RANK is "
        "'x\\x0a', not a number from 0 to 4294967295");
  CHECK(refused(with(kOpenMpi, {{"OMPI_COMM_WORLD_SIZE", "0"}})) ==
        "the environment of Open MPI is broken: OMPI_COMM_WORLD_SIZE is '0', "
        "not a number from 1 to 4294967295");
  CHECK(refused(with(kOpenMpi, {{"OMPI_COMM_WORLD_RANK", "4"}})) ==
        "the environment of Open MPI is broken: OMPI_COMM_WORLD_RANK is 4, "
        "but OMPI_COMM_WORLD_SIZE is 4");
  CHECK(refused(with(kOpenMpi, {{"OMPI_COMM_WORLD_LOCAL_RANK", "2"}})) ==
        "the environment of Open MPI is broken: OMPI_COMM_WORLD_LOCAL_RANK is "
        "2, but OMPI_COMM_WORLD_LOCAL_SIZE is 2");
  CHECK(refused(with(kTorchrun, {{"MASTER_PORT", "65536"}})) ==
        "the environment of torchrun is broken: MASTER_PORT is '65536', not a "
        "number from 1 to 65535");
}
