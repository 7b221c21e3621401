//===- tools/bench/Main.cpp - How a benchmark starts ----------------------===//
#include "tools/sluice/LargePages.h"

#include <benchmark/benchmark.h>

int main(int argc, char **argv) {
  sluice::useLargePages(); // as the command does
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv))
    return 1;
  benchmark::RunSpecifiedBenchmarks();
}
