#include "ir/text/Sections.h"
#include "ir/text/Text.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringMap.h"

namespace sluice {

static constexpr llvm::StringRef kAccesses[] = {"read", "write", "update"};

//===----------------------------------------------------------------------===//
// Printing
//===----------------------------------------------------------------------===//

static void printNamed(const char *key, const std::string &name,
                       llvm::raw_ostream &out) {
  if (name.empty())
    return;
  out << "  " << key << ' ';
  text::printName(name, out);
  out << '\n';
}

static void printNumber(const char *key, uint64_t number,
                        llvm::raw_ostream &out) {
  if (number != 0)
    out << ' ' << key << ' ' << number;
}

static void printLink(Ticks latency, Bytes bandwidth, TimeUnit unit,
                      llvm::raw_ostream &out) {
  if (latency != 0)
    out << " latency " << formatDecimal(latency, unit);
  printNumber("bandwidth", bandwidth, out);
  out << '\n';
}

static void printPaths(const Plan &plan, llvm::raw_ostream &out) {
  for (size_t i = 0; i < plan.channels.size(); ++i) {
    const Channel &channel = plan.channels[i];
    out << "  channel " << i << " rank " << channel.source << " -> "
        << channel.destination << " communicator " << channel.communicator;
    printLink(channel.latency, channel.bandwidth, plan.timeUnit, out);
  }
  for (size_t i = 0; i < plan.collectives.size(); ++i) {
    const Collective &of = plan.collectives[i];
    out << "  collective " << i << " communicator " << of.communicator
        << " ranks ";
    llvm::interleaveComma(of.ranks, out);
    if (of.overReplicas)
      out << " over replicas";
    printLink(of.latency, of.bandwidth, plan.timeUnit, out);
  }
}

static void printHeader(const Plan &plan, llvm::raw_ostream &out) {
  printNamed("model", plan.model, out);
  printNamed("schedule", plan.schedule, out);
  printNamed("source", plan.source, out);
  text::printStages(plan.timeUnit, plan.microbatches, plan.replicas,
                    plan.stages, plan.edges, out);
  if (plan.memoryLimit != 0)
    out << "  memory_limit " << plan.memoryLimit << '\n';
  if (plan.memoryAllowance != 0)
    out << "  memory_allowance " << plan.memoryAllowance << '\n';
  if (plan.hostLink.latency != 0 || plan.hostLink.bandwidth != 0) {
    out << "  host_link";
    printLink(plan.hostLink.latency, plan.hostLink.bandwidth, plan.timeUnit,
              out);
  }
  text::printWarmup(plan.warmup, out);
  for (const auto &[key, value] : plan.run) {
    out << "  run ";
    text::printName(key, out);
    out << ' ';
    text::printName(value, out);
    out << '\n';
  }
  printPaths(plan, out);
}

/// `3, 5` behind ` wait`; ` read 4, 5 write 6`: one word for operands of the
/// same access that stand together.
static void printUses(const RankPlan &rank, uint32_t op,
                      llvm::raw_ostream &out) {
  const char *separator = " wait ";
  for (uint32_t earlier : rank.waitsOf(op)) {
    out << separator << earlier;
    separator = ", ";
  }
  unsigned access = std::size(kAccesses);
  for (Operand use : rank.operandsOf(op)) {
    if (use.access == access)
      out << ", " << use.buffer;
    else
      out << ' ' << kAccesses[use.access] << ' ' << use.buffer;
    access = use.access;
  }
}

static void printOp(const RankPlan &rank, uint32_t index,
                    llvm::raw_ostream &out) {
  const PlanOp &op = rank.ops[index];
  out << "    " << index << ": " << nameOf(op);
  if (op.stream != kComputeStream)
    out << " stream " << unsigned(op.stream);
  if (op.channel != kNone)
    out << (isCollective(op.op) ? " collective " : " channel ") << op.channel;
  if (op.group != kNone)
    out << " group " << op.group;
  printUses(rank, index, out);
  out << '\n';
}

static void printRank(const RankPlan &rank, size_t number,
                      llvm::raw_ostream &out) {
  out << "  rank " << number << " {\n    streams";
  for (const std::string &stream : rank.streams) {
    out << ' ';
    text::printName(stream, out);
  }
  out << "\n    arena " << rank.arenaBytes << '\n';
  if (rank.hostArenaBytes != 0)
    out << "    host_arena " << rank.hostArenaBytes << '\n';
  for (size_t i = 0; i < rank.buffers.size(); ++i) {
    const Buffer &buffer = rank.buffers[i];
    out << "    buffer " << i << ' ' << llvm::StringRef(info(buffer.kind).text);
    if (buffer.stage != kNone)
      out << " stage " << buffer.stage;
    out << " offset " << buffer.offset << " bytes " << buffer.bytes << '\n';
  }
  for (uint32_t i = 0; i < rank.ops.size(); ++i)
    printOp(rank, i, out);
  out << "  }\n";
}

void printPlan(const Plan &plan, llvm::raw_ostream &out) {
  out << "plan {\n";
  printHeader(plan, out);
  for (size_t i = 0; i < plan.ranks.size(); ++i)
    printRank(plan.ranks[i], i, out);
  out << "}\n";
}

//===----------------------------------------------------------------------===//
// Parsing
//===----------------------------------------------------------------------===//

namespace text {
namespace {

/// Where the entries of a rank stand.
struct RankLines {
  SourceLocation rank;
  std::vector<SourceLocation> buffers, ops;
};

class PlanParser {
public:
  PlanParser(Lexer &lexerOfText, Plan &result, OpLocations &locations)
      : lexer(lexerOfText), plan(result), ops(locations),
        stageLines(result.timeUnit, result.microbatches, result.replicas,
                   result.stages, result.edges) {}
  void parse();

private:
  bool parseStatement();
  bool parseRun();
  bool parseChannel();
  bool parseCollective();
  bool parseLink(Ticks &latency, Bytes &bandwidth);
  bool parseRank();
  bool parseRankStatement(RankPlan &rank, RankLines &lines);
  bool parseStreams(RankPlan &rank);
  bool parseBuffer(RankPlan &rank);
  bool parseBufferKind(BufferKind &kind);
  bool parseOp(RankPlan &rank);
  bool parseClause(RankPlan &rank, PlanOp &op, Keys &seen);
  bool parsePlace(PlanOp &op);
  void check();
  SourceLocation at(const StructureFault &fault, const RankLines *rank) const;

  Lexer &lexer;
  Plan &plan;
  OpLocations &ops;
  StageLines stageLines;
  SourceLocation opened = {};
  std::vector<SourceLocation> channelLines, collectiveLines;
  std::vector<RankLines> rankLines;
  Keys keys, rankKeys;
  llvm::StringMap<SourceLocation> runKeys;
  uint32_t nextChannel = 0, nextCollective = 0, nextRank = 0, nextBuffer = 0,
           nextOp = 0;
};

} // namespace

void parsePlan(Lexer &lexer, Plan &plan, OpLocations &ops) {
  PlanParser(lexer, plan, ops).parse();
}

void PlanParser::parse() {
  unsigned errorsBefore = lexer.errorCount();
  opened = lexer.previous();
  parseBlock(lexer, opened, [&] { return parseStatement(); });
  if (lexer.errorCount() == errorsBefore) // else follow-ups hide the first ones
    check();
  for (RankLines &lines : rankLines)
    ops.push_back(std::move(lines.ops));
}

bool PlanParser::parseStatement() {
  static constexpr llvm::StringRef kLists[] = {"stage",   "edge",       "run",
                                               "channel", "collective", "rank"};
  if (std::optional<bool> stageLine = stageLines.parse(lexer))
    return *stageLine;
  if (!llvm::is_contained(kLists, lexer.peek()) && !keys.isFirst(lexer))
    return false;
  if (lexer.accept("model"))
    return lexer.takeName(plan.model, "a name");
  if (lexer.accept("schedule"))
    return lexer.takeName(plan.schedule, "a name");
  if (lexer.accept("source"))
    return lexer.takeName(plan.source, "a name");
  if (lexer.accept("memory_limit"))
    return lexer.takeBytes(plan.memoryLimit);
  if (lexer.accept("memory_allowance"))
    return lexer.takeBytes(plan.memoryAllowance);
  if (lexer.accept("host_link"))
    return parseLink(plan.hostLink.latency, plan.hostLink.bandwidth);
  if (lexer.accept("warmup"))
    return parseWarmup(lexer, plan.warmup);
  if (lexer.accept("run"))
    return parseRun();
  if (lexer.accept("channel"))
    return parseChannel();
  if (lexer.accept("collective"))
    return parseCollective();
  if (lexer.peek() == "rank")
    return parseRank();
  return lexer.unexpected("a key of a plan, such as 'stage', 'channel' or "
                          "'rank', or '}'");
}

bool PlanParser::parseRun() {
  auto &[key, value] = plan.run.emplace_back();
  SourceLocation where = lexer.here();
  llvm::StringRef written = lexer.peek();
  if (!lexer.takeName(key, "a key"))
    return false;
  auto [first, isNew] = runKeys.try_emplace(key, where);
  if (!isNew)
    return lexer.errorTwice(where, first->second, "'" + written + "'");
  return lexer.takeName(value, "a value");
}

bool PlanParser::parseChannel() {
  channelLines.push_back(lexer.here());
  Channel &channel = plan.channels.emplace_back(Channel{0, 0, 0, 0, 0});
  if (!lexer.takeIndex("channel", nextChannel) || !lexer.take("rank") ||
      !lexer.takeId(channel.source, "a rank") || !lexer.take("->") ||
      !lexer.takeId(channel.destination, "a rank") ||
      !lexer.take("communicator") ||
      !lexer.takeId(channel.communicator, "a communicator"))
    return false;
  return parseLink(channel.latency, channel.bandwidth);
}

bool PlanParser::parseCollective() {
  collectiveLines.push_back(lexer.here());
  Collective &of = plan.collectives.emplace_back();
  if (!lexer.takeIndex("collective", nextCollective) ||
      !lexer.take("communicator") ||
      !lexer.takeId(of.communicator, "a communicator") || !lexer.take("ranks"))
    return false;
  do
    if (!lexer.takeId(of.ranks.emplace_back(), "a rank"))
      return false;
  while (lexer.accept(","));
  of.overReplicas = lexer.accept("over");
  if (of.overReplicas && !lexer.take("replicas"))
    return false;
  return parseLink(of.latency, of.bandwidth);
}

bool PlanParser::parseLink(Ticks &latency, Bytes &bandwidth) {
  if (lexer.accept("latency") && !stageLines.takeTime(lexer, latency))
    return false;
  return !lexer.accept("bandwidth") || lexer.takeBytes(bandwidth);
}

bool PlanParser::parseRank() {
  RankLines &lines = rankLines.emplace_back();
  lines.rank = lexer.here();
  plan.ranks.emplace_back();
  if (!lexer.take("rank") || !lexer.takeIndex("rank", nextRank))
    return false;
  if (!lexer.take("{") || !lexer.finishLine())
    return false;
  nextBuffer = nextOp = 0;
  rankKeys = Keys();
  return parseBlock(lexer, lexer.previous(), [&] {
    return parseRankStatement(plan.ranks.back(), lines);
  });
}

bool PlanParser::parseRankStatement(RankPlan &rank, RankLines &lines) {
  bool isList = lexer.peek() == "buffer" || llvm::isDigit(lexer.peek()[0]);
  if (!isList && !rankKeys.isFirst(lexer))
    return false;
  if (lexer.accept("streams"))
    return parseStreams(rank);
  if (lexer.accept("arena"))
    return lexer.takeBytes(rank.arenaBytes);
  if (lexer.accept("host_arena"))
    return lexer.takeBytes(rank.hostArenaBytes);
  if (lexer.peek() == "buffer") {
    lines.buffers.push_back(lexer.here());
    return lexer.accept("buffer") && parseBuffer(rank);
  }
  if (!llvm::all_of(lexer.peek(), llvm::isDigit))
    return lexer.unexpected("'streams', 'arena', 'host_arena', 'buffer', the "
                            "number of an operation, or '}'");
  lines.ops.push_back(lexer.here());
  return parseOp(rank);
}

bool PlanParser::parseStreams(RankPlan &rank) {
  while (!lexer.atEnd())
    if (!lexer.takeName(rank.streams.emplace_back(), "the name of a stream"))
      return false;
  return true;
}

bool PlanParser::parseBufferKind(BufferKind &kind) {
  for (unsigned i = 0; i < kBufferKindCount; ++i)
    if (lexer.accept(kBufferKinds[i].text)) {
      kind = static_cast<BufferKind>(i);
      return true;
    }
  return lexer.unexpected("a kind of buffer, such as 'saved'");
}

bool PlanParser::parseBuffer(RankPlan &rank) {
  Buffer &buffer = rank.buffers.emplace_back();
  if (!lexer.takeIndex("buffer", nextBuffer) || !parseBufferKind(buffer.kind))
    return false;
  if (lexer.accept("stage") && !lexer.takeId(buffer.stage, "a stage"))
    return false;
  return lexer.take("offset") && lexer.takeBytes(buffer.offset) &&
         lexer.take("bytes") && lexer.takeBytes(buffer.bytes);
}

bool PlanParser::parseOp(RankPlan &rank) {
  PlanOp &op = rank.ops.emplace_back(
      PlanOp{0, kNone, kNone, kNone, static_cast<uint32_t>(rank.waits.size()),
             static_cast<uint32_t>(rank.operands.size()), Op::Forward,
             kComputeStream});
  OpRef ref = {};
  if (!lexer.takeIndex("operation", nextOp) || !lexer.take(":") ||
      !lexer.takeOp(ref))
    return false;
  op.op = ref.op;
  op.stage = ref.stage;
  op.microbatch = ref.microbatch;
  Keys seen;
  while (!lexer.atEnd())
    if (!parseClause(rank, op, seen))
      return false;
  return true;
}

/// `stream 1`, `channel 0`, `collective 0`, `group 2`.
bool PlanParser::parsePlace(PlanOp &op) {
  if (lexer.peek() == (isCollective(op.op) ? "channel" : "collective"))
    return lexer.error(nameOf(op) + (isCollective(op.op)
                                         ? " has no channel, but a collective"
                                         : " is no collective"));
  if (lexer.accept("channel"))
    return lexer.takeId(op.channel, "a channel");
  if (lexer.accept("collective"))
    return lexer.takeId(op.channel, "a collective");
  if (lexer.accept("group"))
    return lexer.takeId(op.group, "a group");
  uint32_t stream = 0;
  if (!lexer.take("stream") ||
      !lexer.takeId(stream, "a stream", kMaxStreams - 1))
    return false;
  op.stream = static_cast<uint8_t>(stream);
  return true;
}

bool PlanParser::parseClause(RankPlan &rank, PlanOp &op, Keys &seen) {
  const auto *access = llvm::find(kAccesses, lexer.peek());
  bool isAccess = access != std::end(kAccesses); // these may take turns
  if (!isAccess && !seen.isFirst(lexer))
    return false;
  if (lexer.accept("wait")) {
    do
      if (!lexer.takeId(rank.waits.emplace_back(), "an operation"))
        return false;
    while (lexer.accept(","));
    return true;
  }
  if (!isAccess) {
    bool place = lexer.peek() == "stream" || lexer.peek() == "channel" ||
                 lexer.peek() == "collective" || lexer.peek() == "group";
    return place ? parsePlace(op)
                 : lexer.unexpected("'stream', 'channel', 'collective', "
                                    "'group', 'wait', 'read', 'write' or "
                                    "'update'");
  }
  lexer.accept(*access);
  constexpr uint32_t kHighestBuffer = (1u << 30) - 1;
  do {
    uint32_t buffer = 0;
    if (!lexer.takeId(buffer, "a buffer", kHighestBuffer))
      return false;
    rank.operands.push_back(
        operand(buffer, static_cast<Access>(access - kAccesses)));
  } while (lexer.accept(","));
  return true;
}

SourceLocation PlanParser::at(const StructureFault &fault,
                              const RankLines *rank) const {
  switch (fault.part) {
  case StructureFault::Part::Plan:
    return opened;
  case StructureFault::Part::Stage:
  case StructureFault::Part::Edge:
    return stageLines.at(fault);
  case StructureFault::Part::Channel:
    return channelLines[fault.index];
  case StructureFault::Part::Collective:
    return collectiveLines[fault.index];
  case StructureFault::Part::Rank:
    return rank->rank;
  case StructureFault::Part::Buffer:
    return rank->buffers[fault.index];
  case StructureFault::Part::Op:
    return rank->ops[fault.index];
  }
  return opened;
}

void PlanParser::check() {
  SectionFaults faults(lexer);
  const RankLines *lines = nullptr;
  Id number = 0;
  FaultSink tell = [&](const StructureFault &fault) {
    faults.tell(at(fault, lines), describe(plan, number, fault));
    return true;
  };
  findHeaderFaults(plan, tell);
  for (Id rank = 0; faults.none() && rank < plan.ranks.size(); ++rank) {
    lines = &rankLines[rank];
    number = rank;
    findRankFaults(plan, rank, tell);
  }
  faults.finish();
}

} // namespace text
} // namespace sluice
