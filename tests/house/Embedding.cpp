//===- tests/house/Embedding.cpp - A trainer that embeds the runtime ------===//
//
// Links the runtime and what that brings, nothing else: reads a plan file,
// verifies it, runs it. embedding.py looks at what was linked.
//
//===----------------------------------------------------------------------===//
#include "ir/PlanFile.h"
#include "ir/verify/Verify.h"
#include "runtime/Job.h"
#include "runtime/Modules.h"

#include <cstdio>

using namespace sluice;

static int end(const Status &status) {
  std::fprintf(stderr, "error: %s\n", status.message().c_str());
  return 1;
}

int main(int argc, char **argv) {
  if (argc != 2)
    return 2;
  Plan plan;
  if (Status status = readPlanFile(argv[1], plan); !status.ok())
    return end(status);
  for (const verify::Finding &finding : verify::verifyPlan(plan).errors)
    return end(Status::input(verify::describe(plan, finding)));
  runtime::JobOptions options;
  options.module = runtime::findModule("synthetic");
  runtime::JobResult result;
  if (Status status = runtime::runJob(plan, options, result); !status.ok())
    return end(status);
  std::printf("%zu steps\n", result.stepSeconds.size());
  return 0;
}
