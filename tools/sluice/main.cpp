//===- tools/sluice/main.cpp - The command `sluice` ----------------------===//
#include "tools/sluice/CommandLine.h"

int main(int argc, char **argv) { return sluice::runCommandLine(argc, argv); }
