//===- tools/sluice/CommandLine.h - Flags of every command ---------------===//
#ifndef SLUICE_TOOLS_SLUICE_COMMANDLINE_H
#define SLUICE_TOOLS_SLUICE_COMMANDLINE_H

#include "compiler/spec/Parser.h"
#include "ir/text/ActionsPlan.h"
#include "ir/verify/Verify.h"

#include <optional>
#include <string>
#include <vector>

namespace sluice {

/// What the command line said. Each command uses its own part; which flags a
/// command knows is checked while parsing.
struct Arguments {
  std::string input;
  std::string output;             ///< -o; empty: standard output
  std::vector<std::string> emits; ///< names of the table in Emit.cpp
  bool json = false;
  std::vector<std::string> compare; ///< schedules; empty: no comparison
  std::string passes;
  std::optional<ActionCosts> costs; ///< of a CSV
  verify::Options verify;
  bool explain = false;

  std::string backend; ///< empty: by who launched the process
  std::string logDir;
  bool graph = false;
  uint32_t devices = 0; ///< 0: all that there are
  std::string module;
  std::string data;
  std::optional<uint64_t> steps;
  double timeoutSeconds = 60;
  std::string save;
  std::string checkpointDir;
  uint64_t checkpointEvery = 0;
  std::string flightRecorder; ///< file of the last operations of a run
  std::string timeline;       ///< stem of the pictures and traces of a run

  std::vector<Override> overrides;
  std::vector<std::string> printAfter; ///< "*": after every pass
  bool timePasses = false;
  bool verbose = false;
  bool quiet = false;
};

/// One command: a row of Commands.def.
struct Command {
  const char *name;
  const char *summary;
  const char *examples;
  int (*run)(const Arguments &arguments);
};

/// Parses and runs; returns the exit code: 0 fine; 1 the input is at fault; 2
/// the command line; 3 the environment.
int runCommandLine(int argc, char **argv);

namespace commands {
#define SLUICE_COMMAND(Name, ...) int Name(const Arguments &arguments);
#include "tools/sluice/Commands.def"
} // namespace commands

} // namespace sluice

#endif // SLUICE_TOOLS_SLUICE_COMMANDLINE_H
