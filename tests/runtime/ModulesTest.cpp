//===- tests/runtime/ModulesTest.cpp - Finding stage modules -------------===//
#include "runtime/Modules.h"

#include "runtime/Job.h"
#include "runtime/modules/synthetic/Synthetic.h"
#include "tests/Catch.h"
#include "tests/runtime/PlanForTests.h"

using namespace sluice;
using namespace sluice::runtime;

TEST_CASE("runtime: shipped modules have names", "[runtime][modules]") {
  CHECK(moduleNames() == std::vector<std::string_view>{"gpt", "synthetic"});
  CHECK(findModule("synthetic") == sluice_synthetic_module());
  CHECK(findModule("gpt") != nullptr);
  CHECK(findModule("GPT") == nullptr);
  const sluice_module *module = nullptr;
  REQUIRE(loadModule("synthetic", module).ok());
  CHECK(module == sluice_synthetic_module());
  for (const std::string_view name : moduleNames())
    CHECK(checkModule(findModule(name), "shipped").ok());
}

TEST_CASE("runtime: a module that does not exist is refused",
          "[runtime][modules]") {
  const sluice_module *module = nullptr;
  const Status unknown = loadModule("gtp\n", module);
  CHECK(unknown.fault() == Fault::Usage);
  CHECK(unknown.message() ==
        "there is no module gtp\\x0a; shipped are gpt, synthetic, a shared "
        "library is named by a path with a '/'");
  const Status missing = loadModule("/nowhere/module.so", module);
  CHECK(missing.fault() == Fault::Input);
  CHECK(missing.message() ==
        "cannot load module /nowhere/module.so: /nowhere/module.so: cannot "
        "open shared object file: No such file or directory");
  CHECK(module == nullptr);
}

TEST_CASE("runtime: a shared library is a module", "[runtime][modules]") {
  const sluice_module *module = nullptr;
  const Status status = loadModule(SLUICE_TEST_PLUGIN, module);
  INFO(status.message());
  REQUIRE(status.ok());
  CHECK(std::string_view(module->name) == "plugin");
  JobOptions options;
  options.module = module;
  options.steps = 2;
  JobResult result;
  REQUIRE(runJob(tests::makeChain({}), options, result).ok());
  CHECK(result.losses == std::vector<double>{0.25, 0.25});
}

TEST_CASE("runtime: a table that does not fit is refused",
          "[runtime][modules]") {
  CHECK(checkModule(nullptr, "module x.so").message() ==
        "module x.so gives no module");
  sluice_module table = *sluice_synthetic_module();
  table.version = SLUICE_MODULE_VERSION + 1;
  CHECK(checkModule(&table, "module x.so").message() ==
        "module x.so has version " + std::to_string(SLUICE_MODULE_VERSION + 1) +
            " of the interface of stage modules, this program " +
            std::to_string(SLUICE_MODULE_VERSION));
  table = *sluice_synthetic_module();
  table.backward_weight = nullptr;
  const Status status = checkModule(&table, "module x.so");
  CHECK(status.fault() == Fault::Input);
  CHECK(status.message() == "module x.so lacks backward_weight");
}
