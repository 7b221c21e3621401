#include "tools/sluice/CommandLine.h"

#include "compiler/passes/PassManager.h"
#include "tools/sluice/Emit.h"
#include "tools/sluice/Files.h"
#include "tools/sluice/ParseFlags.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Allocator.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/ErrorHandling.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/StringSaver.h"
#include "llvm/Support/raw_ostream.h"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <new>
#include <stdexcept>

#ifndef SLUICE_VERSION
#error "SLUICE_VERSION comes from the build"
#endif

namespace cl = llvm::cl;

namespace sluice {

static constexpr Command kCommands[] = {
#define SLUICE_COMMAND(Name, Summary, Examples)                                \
  {#Name, Summary, Examples, commands::Name},
#include "tools/sluice/Commands.def"
};

/// Refuses names of passes that do not exist.
static bool checkPassNames(llvm::ArrayRef<std::string> names,
                           llvm::raw_ostream &errors) {
  bool ok = true;
  for (const std::string &name : names)
    if (name != "*" && !findPass(name)) {
      errors << "error: --print-ir-after=" << escaped(name) << ": "
             << unknownPass(name) << '\n';
      ok = false;
    }
  return ok;
}

/// For --help: the passes in the order of the walk.
static llvm::StringRef passesDescription() {
  static const std::string text =
      "passes to run, in this order: " +
      llvm::join(
          llvm::map_range(allPasses(),
                          [](const PassInfo &pass) { return pass.text; }),
          ", ");
  return text;
}

namespace {
/// The flags as LLVM's library sees them. One instance, alive while parsing.
struct Flags {
  cl::OptionCategory category{"options"};
#define SLUICE_COMMAND(Name, Summary, Examples)                                \
  cl::SubCommand Name{#Name, Summary};
#include "tools/sluice/Commands.def"

  cl::opt<std::string> input{
      cl::Positional,   cl::Required,    cl::desc("FILE"),
      cl::sub(compile), cl::sub(report), cl::sub(check),
      cl::sub(run),     cl::sub(opt),    cl::cat(category)};
  cl::opt<std::string> output{
      "o",
      cl::value_desc("file"),
      cl::sub(compile),
      cl::sub(opt),
      cl::cat(category),
      cl::desc("where to write (compile, with several --emit: the stem of the "
               "names)")};
  cl::list<std::string> emits{
      "emit",           cl::CommaSeparated, cl::value_desc("what,..."),
      cl::sub(compile), cl::cat(category),  cl::desc(emitDescription())};
  cl::opt<bool> json{"json", cl::sub(report), cl::sub(check), cl::cat(category),
                     cl::desc("one JSON object on stdout")};
  cl::list<std::string> compare{
      "compare",
      cl::CommaSeparated,
      cl::value_desc("schedule,..."),
      cl::sub(report),
      cl::cat(category),
      cl::desc("these schedules beside the spec's own, in one table")};
  cl::opt<std::string> costs{
      "costs", cl::value_desc("F,I,W[,C]"), cl::sub(report), cl::cat(category),
      cl::desc("of a CSV: what a microbatch takes on a rank, forward, backward "
               "by inputs, by weights, and a message (default 1,1,1,0)")};
  cl::opt<std::string> passes{
      "passes",     cl::Required,      cl::value_desc("a,b,..."),
      cl::sub(opt), cl::cat(category), cl::desc(passesDescription())};
  cl::opt<bool> explain{
      "explain", cl::sub(check), cl::cat(category),
      cl::desc("of a good plan also say why it holds: channels, the order of "
               "communication, memory")};
  cl::opt<std::string> progress{
      "progress",
      cl::init("rank"),
      cl::value_desc("rank|pair|edge|stream"),
      cl::sub(check),
      cl::cat(category),
      cl::desc(
          "how many queues the communication of a rank is assumed to have: "
          "rank (default), one for all: what to ask for with NCCL, which "
          "promises no more; pair, one for each peer; edge, one for each "
          "peer and direction; stream, only the plan's own streams")};
  cl::opt<std::string> p2p{
      "p2p",
      cl::init("rendezvous"),
      cl::value_desc("rendezvous|buffered:N"),
      cl::sub(check),
      cl::cat(category),
      cl::desc("when a send may end: rendezvous (default), once its "
               "receive has started; buffered:N, also while at "
               "most N messages of its channel, its own among "
               "them, are not received")};
  cl::opt<std::string> backend{
      "backend", cl::value_desc("host|mpi|cuda"), cl::sub(run),
      cl::cat(category),
      cl::desc("what executes: host, a thread a rank in one process; mpi, a "
               "process a rank, as mpirun or srun starts them (default: mpi "
               "where one of these started it, else host); cuda, on GPUs, all "
               "ranks in one process or as mpi")};
  cl::opt<std::string> logDir{
      "log-dir", cl::value_desc("folder"), cl::sub(run), cl::cat(category),
      cl::desc("with several processes: what all but the first say goes to "
               "FOLDER/rank-N.log, instead of nowhere")};
  cl::opt<std::string> devices{
      "devices", cl::value_desc("n"), cl::sub(run), cl::cat(category),
      cl::desc("GPUs to use at most; where there are fewer than ranks, ranks "
               "share them")};
  cl::opt<bool> graph{
      "graph", cl::sub(run), cl::cat(category),
      cl::desc("backend cuda: capture a step once, then repeat it")};
  cl::opt<std::string> module{
      "module", cl::value_desc("gpt|synthetic|path"), cl::sub(run),
      cl::cat(category),
      cl::desc("stage module; a path names a shared library")};
  cl::opt<std::string> data{"data", cl::value_desc("file"), cl::sub(run),
                            cl::cat(category), cl::desc("text to train on")};
  cl::opt<std::string> steps{"steps", cl::value_desc("n"), cl::sub(run),
                             cl::cat(category), cl::desc("training steps")};
  cl::opt<std::string> timeout{
      "timeout",
      cl::init("60s"),
      cl::value_desc("time"),
      cl::sub(run),
      cl::cat(category),
      cl::desc("how long a rank may stand still, or its process not be heard "
               "of, before the run is ended; "
               "seconds, or with a unit (default 60s)")};
  cl::opt<std::string> save{"save", cl::value_desc("file"), cl::sub(run),
                            cl::cat(category),
                            cl::desc("write the trained weights")};
  cl::opt<std::string> checkpointDir{
      "checkpoint-dir", cl::value_desc("dir"), cl::sub(run), cl::cat(category),
      cl::desc(
          "write checkpoints there, the two newest are kept; where there "
          "is one, go on from it; SIGINT and SIGTERM end the run with one")};
  cl::opt<std::string> checkpointEvery{
      "checkpoint-every", cl::value_desc("n"), cl::sub(run), cl::cat(category),
      cl::desc("steps between checkpoints (default: one after the last step)")};
  cl::opt<std::string> flightRecorder{
      "flight-recorder", cl::value_desc("file"), cl::sub(run),
      cl::cat(category),
      cl::desc(
          "write the last 4096 operations of every rank as a trace, however "
          "the run ends")};
  cl::opt<std::string> timeline{
      "timeline", cl::value_desc("stem"), cl::sub(run), cl::cat(category),
      cl::desc("write STEM.predicted and STEM.measured as .svg and .trace")};
  cl::list<std::string> set{
      "set",
      cl::value_desc("key=value"),
      cl::sub(compile),
      cl::sub(report),
      cl::sub(run),
      cl::sub(opt),
      cl::cat(category),
      cl::desc("override a key of the spec (of a plan: run.* only)")};
  cl::list<std::string> printAfter{
      "print-ir-after",
      cl::CommaSeparated,
      cl::value_desc("pass,..."),
      cl::sub(compile),
      cl::sub(report),
      cl::sub(run),
      cl::sub(opt),
      cl::cat(category),
      cl::desc("print the IR after this pass, to stderr")};
  cl::opt<bool> printAfterAll{"print-ir-after-all",
                              cl::sub(compile),
                              cl::sub(report),
                              cl::sub(run),
                              cl::sub(opt),
                              cl::cat(category),
                              cl::desc("print the IR after every pass")};
  cl::opt<bool> timePasses{"time-passes",
                           cl::sub(compile),
                           cl::sub(report),
                           cl::sub(run),
                           cl::sub(opt),
                           cl::cat(category),
                           cl::desc("print the time of each pass, to stderr")};
  cl::opt<bool> verbose{
      "v", cl::sub(cl::SubCommand::getAll()), cl::cat(category),
      cl::desc("say more, on stderr; of report the costs and "
               "sizes of each kind of layer, of check how each deadlock comes "
               "about, not of three alone, with the result")};
  cl::opt<bool> quiet{"q", cl::sub(cl::SubCommand::getAll()), cl::cat(category),
                      cl::desc("errors only, on stderr (check, whose findings "
                               "are its result: on stdout)")};

  /// Fills `arguments`; says in `errors` what is not a legal value.
  bool read(Arguments &arguments, llvm::raw_ostream &errors) const;

private:
  bool readOverrides(Arguments &arguments, llvm::raw_ostream &errors) const;
  bool readCosts(Arguments &arguments, llvm::raw_ostream &errors) const;
  bool readVerify(Arguments &arguments, llvm::raw_ostream &errors) const;
  bool readRun(Arguments &arguments, llvm::raw_ostream &errors) const;
};
} // namespace

bool Flags::readOverrides(Arguments &arguments,
                          llvm::raw_ostream &errors) const {
  bool ok = true;
  for (const std::string &text : set) {
    auto [key, value] = llvm::StringRef(text).split('=');
    if (key.empty() || key.size() == text.size()) {
      errors << "error: --set=" << escaped(text) << " is not KEY=VALUE\n";
      ok = false;
    }
    arguments.overrides.push_back({key.str(), value.str()});
  }
  return ok;
}

bool Flags::readCosts(Arguments &arguments, llvm::raw_ostream &errors) const {
  if (!costs.getNumOccurrences())
    return true;
  ActionCosts read;
  Ticks *const places[] = {&read.rank.forward, &read.rank.backwardInput,
                           &read.rank.backwardWeight, &read.message};
  llvm::SmallVector<llvm::StringRef, 4> words;
  llvm::StringRef(costs).split(words, ',');
  std::optional<TimeUnit> unit;
  bool good = words.size() == 3 || words.size() == 4;
  for (size_t i = 0; good && i < words.size(); ++i) {
    std::optional<ParsedTime> time = parseTime(words[i]);
    good = time && (!unit || !time->unit || *unit == *time->unit);
    if (!good)
      break;
    *places[i] = time->ticks;
    unit = unit ? unit : time->unit;
  }
  read.unit = unit.value_or(TimeUnit::Unit);
  arguments.costs = read;
  if (!good)
    errors << "error: --costs=" << escaped(costs)
           << " is not three or four times F,I,W[,C], such as 1,1,1 or "
              "2ms,2ms,1ms,100us\n";
  return good;
}

bool Flags::readVerify(Arguments &arguments, llvm::raw_ostream &errors) const {
  bool ok = true;
  if (auto model = verify::progressFromName(progress.getValue())) {
    arguments.verify.progress = *model;
  } else {
    errors << "error: --progress=" << escaped(progress)
           << " is not one of rank, pair, edge, stream\n";
    ok = false;
  }
  llvm::StringRef p2pText = p2p.getValue();
  if (p2pText.consume_front("buffered:")) {
    if (p2pText.getAsInteger(10, arguments.verify.buffered)) {
      errors << "error: --p2p=" << escaped(p2p) << " needs a count from 0 to "
             << UINT32_MAX << " after 'buffered:'\n";
      ok = false;
    }
  } else if (p2pText != "rendezvous") {
    errors << "error: --p2p=" << escaped(p2p)
           << " is not rendezvous or buffered:N\n";
    ok = false;
  }
  return ok;
}

bool Flags::readRun(Arguments &arguments, llvm::raw_ostream &errors) const {
  std::optional<ParsedTime> time = parseTime(timeout.getValue());
  if (!time || time->ticks == 0) {
    errors << "error: --timeout=" << escaped(timeout)
           << " is not a time above 0, such as 30 or 500ms\n";
    return false;
  }
  TimeUnit unit = time->unit.value_or(TimeUnit::Unit);
  arguments.timeoutSeconds =
      static_cast<double>(time->ticks) / static_cast<double>(ticksPer(unit));
  bool ok = true;
  if (devices.getNumOccurrences() &&
      (llvm::StringRef(devices).getAsInteger(10, arguments.devices) ||
       arguments.devices == 0)) {
    errors << "error: --devices=" << escaped(devices)
           << " is not a count from 1\n";
    ok = false;
  }
  uint64_t count = 0;
  if (steps.getNumOccurrences() &&
      llvm::StringRef(steps).getAsInteger(10, count)) {
    errors << "error: --steps=" << escaped(steps) << " is not a count\n";
    ok = false;
  } else if (steps.getNumOccurrences()) {
    arguments.steps = count;
  }
  if (!checkpointEvery.getNumOccurrences())
    return ok;
  if (llvm::StringRef(checkpointEvery)
          .getAsInteger(10, arguments.checkpointEvery) ||
      arguments.checkpointEvery == 0) {
    errors << "error: --checkpoint-every=" << escaped(checkpointEvery)
           << " is not a count from 1\n";
    ok = false;
  } else if (checkpointDir.empty()) {
    errors << "error: --checkpoint-every needs --checkpoint-dir\n";
    ok = false;
  }
  return ok;
}

bool Flags::read(Arguments &arguments, llvm::raw_ostream &errors) const {
  arguments.input = input;
  arguments.output = output;
  arguments.emits.assign(emits.begin(), emits.end());
  arguments.json = json;
  arguments.compare.assign(compare.begin(), compare.end());
  arguments.passes = passes;
  arguments.backend = backend;
  arguments.graph = graph;
  arguments.logDir = logDir;
  arguments.module = module;
  arguments.data = data;
  arguments.save = save;
  arguments.checkpointDir = checkpointDir;
  arguments.timeline = timeline;
  arguments.flightRecorder = flightRecorder;
  arguments.printAfter.assign(printAfter.begin(), printAfter.end());
  if (printAfterAll)
    arguments.printAfter.push_back("*");
  arguments.timePasses = timePasses;
  arguments.explain = explain;
  arguments.verbose = verbose;
  arguments.quiet = quiet;
  bool ok = readOverrides(arguments, errors);
  ok = checkPassNames(arguments.printAfter, errors) && ok;
  for (const cl::opt<std::string> *option :
       {&output, &backend, &logDir, &module, &data, &save, &checkpointDir,
        &timeline, &flightRecorder})
    if (option->getNumOccurrences() && option->empty()) {
      errors << "error: -" << (option->ArgStr.size() > 1 ? "-" : "")
             << option->ArgStr << " has no value\n";
      ok = false;
    }
  ok = readCosts(arguments, errors) && ok;
  ok = readVerify(arguments, errors) && ok;
  return readRun(arguments, errors) && ok;
}

static void printVersion(llvm::raw_ostream &out) {
  out << "sluice " SLUICE_VERSION "\n";
}

static const Command *findCommand(llvm::StringRef name) {
  for (const Command &command : kCommands)
    if (name == command.name)
      return &command;
  return nullptr;
}

static void printOverview(llvm::raw_ostream &out) {
  out << "sluice: a schedule compiler for pipeline-parallel training\n\n"
         "usage: sluice <command> [options] FILE   (FILE '-': standard "
         "input)\n\n";
  for (const Command &command : kCommands)
    out << llvm::formatv("  {0,-9}{1}\n", command.name, command.summary);
  out << "\n'sluice <command> --help' lists a command's options and examples; "
         "--version prints the version.\n"
         "exit codes: 0 fine, 1 the input is at fault, 2 the command line, "
         "3 the environment\n";
}

/// Commands of the contract that do not exist yet.
static constexpr llvm::StringRef kPlanned[] = {"view", "tune", "profile",
                                               "explain", "diff"};

/// What the command line asks for that is planned only; empty if nothing.
static std::string plannedOnly(llvm::ArrayRef<const char *> arguments) {
  llvm::StringRef command = arguments.front();
  return llvm::is_contained(kPlanned, command)
             ? ("the command '" + command + "'").str()
             : "";
}

/// What LLVM cannot go on after: for one, output that cannot be written when
/// the program ends.
static void endAtFatalError(void *, const char *reason, bool) {
  std::fprintf(stderr, "error: %s\n", escaped(reason).c_str());
  std::_Exit(static_cast<int>(Fault::Environment));
}

static int wrongCommand(llvm::StringRef name) {
  llvm::errs() << "error: there is no command '" << escaped(name) << "'\n";
  printOverview(llvm::errs());
  return 2;
}

static int runGuarded(const Command &command, const Arguments &arguments) {
  try {
    return command.run(arguments);
  } catch (const std::bad_alloc &) {
    return fail(Status::environment("out of memory"));
  } catch (const std::length_error &) {
    return fail(Status::environment("out of memory"));
  }
}

/// Parses with LLVM's library and runs.
static int runCommand(const Command &command,
                      llvm::ArrayRef<const char *> arguments) {
  Flags flags;
  cl::HideUnrelatedOptions(flags.category);
  for (cl::SubCommand *sub : cl::getRegisteredSubcommands())
    cl::HideUnrelatedOptions(flags.category, *sub);
  std::string exampleText = std::string("\nexamples:\n") + command.examples;
  cl::extrahelp examples(exampleText); // keeps a reference
  cl::SetVersionPrinter(printVersion);
  std::string text;
  llvm::raw_string_ostream errors(text);
  Arguments parsed;
  bool ok = parseFlags(arguments, errors) && flags.read(parsed, errors);
  if (!ok) {
    llvm::errs() << text << "'sluice " << command.name
                 << " --help' lists the options\n";
    return 2;
  }
  return runGuarded(command, parsed);
}

/// `arguments` as LLVM's library is to see them: "help X" is "X --help", and a
/// word that begins with '@' is a file of that name, not of arguments.
static std::vector<const char *>
plainArguments(llvm::ArrayRef<const char *> arguments,
               llvm::StringSaver &saver) {
  std::vector<const char *> plain = arguments.vec();
  if (plain.size() > 2 && plain[1] == llvm::StringRef("help"))
    plain = {plain[0], plain[2], "--help"};
  for (const char *&argument : plain)
    if (argument[0] == '@')
      argument = saver.save(llvm::Twine("./") + argument).data();
  return plain;
}

int runCommandLine(int argc, char **argv) {
  llvm::install_fatal_error_handler(endAtFatalError);
  llvm::BumpPtrAllocator memory;
  llvm::StringSaver saver(memory);
  std::vector<const char *> arguments =
      plainArguments(llvm::ArrayRef<const char *>(argv, argc), saver);
  llvm::StringRef first = arguments.size() > 1 ? arguments[1] : "";
  if (first == "--version") {
    printVersion(llvm::outs());
    return 0;
  }
  if (first.empty() || first == "--help" || first == "-h" || first == "help") {
    printOverview(first.empty() ? llvm::errs() : llvm::outs());
    return first.empty() ? 2 : 0;
  }
  std::string planned = plannedOnly(llvm::ArrayRef(arguments).drop_front());
  if (!planned.empty())
    return fail(Status::usage(planned + " is not supported yet"));
  const Command *command = findCommand(first);
  return command ? runCommand(*command, arguments) : wrongCommand(first);
}

} // namespace sluice
