//===- tests/fuzz/CsvFuzz.cpp - Any bytes as a schedule CSV ---------------===//
//
// libFuzzer's entry point. Reading must end in a plan or a diagnostic. What is
// read is the same when it is printed and read again, and what is proved of a
// list of computations holds of the plan with messages that is made of it.
//
//===----------------------------------------------------------------------===//
#include "compiler/Compilation.h"
#include "compiler/emit/Emit.h"
#include "compiler/passes/PassManager.h"
#include "ir/text/Actions.h"
#include "ir/text/ActionsPlan.h"
#include "ir/verify/Verify.h"

#include "llvm/Support/raw_ostream.h"

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <random>

using namespace sluice;

static void require(bool holds, const char *what) {
  if (holds)
    return;
  std::fprintf(stderr, "does not hold: %s\n", what);
  std::abort();
}

namespace {

/// A CSV with its plan. Neither moves.
struct Csv {
  explicit Csv(std::string of, char separator = ',') : text(std::move(of)) {
    lines = linesOfCsv(text, diagnostics.addSource("input.csv", text));
    actions = parseActions(lines, separator, diagnostics);
    isRead = !diagnostics.hasErrors();
    if (isRead)
      compilation.plan = planOfActions(actions, lines, {}, diagnostics);
    require(compilation.plan.has_value() != diagnostics.hasErrors(),
            "a plan or an error");
    require(compilation.plan || !diagnostics.render().empty(), "a word why");
  }
  Csv(const Csv &) = delete;
  Csv &operator=(const Csv &) = delete;

  const Plan &plan() const { return *compilation.plan; }

  std::string text;
  Diagnostics diagnostics;
  std::vector<ActionLine> lines;
  Actions actions;
  bool isRead = false;
  Compilation compilation{diagnostics};
};

/// Writes what was read, a row a rank.
class Printer {
public:
  Printer(const Actions &of, char separator)
      : actions(of), separator(1, separator) {}

  std::string print() {
    for (Id rank = 0; rank < actions.ranks(); ++rank) {
      row = rank;
      between = "";
      uint32_t end = actions.firstOfRank[rank + 1];
      for (uint32_t at = actions.firstOfRank[rank]; at < end;)
        at = cell(at, end);
      waits(end);
      text += "\n";
    }
    return text;
  }

private:
  void add(const std::string &part) {
    text += between + part;
    between = separator;
  }

  /// WAIT_SENDs of the row before the action at `at`.
  void waits(uint32_t at) {
    for (; nextWait < actions.sendWaits.size() &&
           actions.sendWaits[nextWait].rank == row &&
           actions.sendWaits[nextWait].before <= at;
         ++nextWait) {
      const Action &send = actions.sendWaits[nextWait].send;
      add(std::to_string(send.stage) + "WAIT_" +
          std::string(info(send.op).text) + std::to_string(send.microbatch));
    }
  }

  uint32_t cell(uint32_t at, uint32_t end) {
    waits(at);
    Id group = actions.list[at].group;
    auto name = [this](uint32_t i) {
      const Action &action = actions.list[i];
      return opName(action.op, action.stage, action.microbatch);
    };
    if (group == kNone) {
      add(name(at));
      return at + 1;
    }
    bool isBatch = isMessage(actions.list[at].op);
    add("(" + name(at));
    for (++at; at < end && actions.list[at].group == group; ++at)
      text += ";" + name(at);
    text += isBatch ? ")BATCH_P2P" : kPairEnd;
    return at;
  }

  const Actions &actions;
  std::string separator, between, text;
  Id row = 0;
  size_t nextWait = 0;
};

} // namespace

static bool sameAction(const Action &a, const Action &b) {
  return a.stage == b.stage && a.microbatch == b.microbatch && a.op == b.op &&
         a.group == b.group;
}

static void checkPrinted(const Csv &csv, char separator) {
  Csv again(Printer(csv.actions, separator).print(), separator);
  require(again.isRead, "what was read and printed is read");
  const Actions &one = csv.actions, &other = again.actions;
  require(one.list.size() == other.list.size() &&
              one.sendWaits.size() == other.sendWaits.size(),
          "as many actions");
  require(std::equal(one.list.begin(), one.list.end(), other.list.begin(),
                     sameAction),
          "the same actions");
  for (size_t i = 0; i < one.sendWaits.size(); ++i)
    require(one.sendWaits[i].rank == other.sendWaits[i].rank &&
                one.sendWaits[i].before == other.sendWaits[i].before &&
                sameAction(one.sendWaits[i].send, other.sendWaits[i].send),
            "the same waits");
}

/// Proves `plan` under every model; what the findings say must be sound.
static verify::Result checkVerified(const Plan &plan, bool buffers) {
  verify::Result rank = verify::verifyPlan(plan, {.buffers = buffers});
  require(!rank.holds[0] || rank.holds[1], "rank implies pair");
  require(!rank.holds[1] || rank.holds[2], "pair implies edge");
  require(!rank.holds[2] || rank.holds[3], "edge implies stream");
  for (unsigned model = 0; model < std::size(verify::kProgressModels); ++model)
    for (uint32_t buffered : {0u, 1u}) {
      verify::Result result = verify::verifyPlan(
          plan, {.progress = static_cast<verify::Progress>(model),
                 .buffered = buffered,
                 .buffers = buffers});
      require(buffered != 0 || result.holds[model] == rank.holds[model],
              "one answer of each model");
      require(!result.ok() || result.holds[model], "what is fine holds");
      require(buffered == 0 || !rank.holds[model] || result.holds[model],
              "buffers never hurt");
      for (const verify::Finding &finding : result.errors)
        require(!verify::describe(plan, finding).empty(), "a finding's words");
    }
  return rank;
}

/// Names of a rank's operations that a CSV can say, pairs marked.
static std::vector<std::string> namesOf(const Plan &plan, Id rank) {
  std::vector<std::string> names;
  if (rank >= plan.ranks.size())
    return names;
  const std::vector<PlanOp> &ops = plan.ranks[rank].ops;
  for (size_t i = 0; i < ops.size(); ++i)
    if (info(ops[i].op).perMicrobatch)
      names.push_back(
          nameOf(ops[i]) +
          (isCompute(ops[i].op) && ops[i].group != kNone ? "+" : ""));
  return names;
}

static void checkSameNames(const Plan &plan, const Plan &other) {
  for (Id rank = 0; rank < plan.ranks.size(); ++rank)
    require(namesOf(plan, rank) == namesOf(other, rank), "the same operations");
}

template <typename Emit> static std::string textOf(Emit emit) {
  std::string text;
  llvm::raw_string_ostream out(text);
  emit(out);
  return text;
}

/// A plan with messages: what is emitted is read as the same.
static void checkEmitted(const Plan &plan, bool isRight) {
  Csv again(
      textOf([&](llvm::raw_ostream &out) { emitTorchCsvComms(plan, out); }));
  require(again.compilation.plan.has_value(), "what is emitted is read");
  checkSameNames(plan, again.plan());
  verify::Result result = checkVerified(again.plan(), /*buffers=*/false);
  require(!isRight || result.ok(), "what is emitted of a right plan is right");
}

/// A list of computations that is right: so is what is made of it.
static void checkLowered(Csv &csv) {
  Compilation &c = csv.compilation;
  raiseSchedule(c);
  if (!verify::verifySchedule(*c.graph, *c.schedule).ok())
    return;
  Csv again(textOf([&](llvm::raw_ostream &out) {
    emitTorchCsv(*c.graph, *c.schedule, out);
  }));
  require(again.compilation.plan.has_value(), "the emitted order is read");
  checkSameNames(csv.plan(), again.plan());
  if (!passes::SimulateOps(c) || !passes::LowerToPlan(c)) {
    require(csv.diagnostics.hasErrors(), "a word why it has no plan");
    return;
  }
  verify::Result result = checkVerified(csv.plan(), /*buffers=*/true);
  require(result.ok(), "the plan of a right order is right");
  checkEmitted(csv.plan(), /*isRight=*/true);
}

namespace {

/// Lists that are whole: all ranks compute what they have to, in an order that
/// is nearly a good one, perhaps with messages.
class Lists {
public:
  explicit Lists(unsigned seed) : random(seed) {
    ranks = 1 + below(4);
    chunks = 1 + below(2);
    microbatches = 1 + below(4);
    turns = below(2);
    splits = below(2);
  }

  std::string make() {
    bool withMessages = below(2);
    std::string text;
    for (Id rank = 0; rank < ranks; ++rank) {
      std::vector<std::string> row = computeOf(rank);
      disturb(row);
      if (withMessages) {
        row = withMessagesOf(row);
        disturb(row);
      }
      for (size_t i = 0; i < row.size(); ++i)
        text += (i ? "," : "") + row[i];
      text += "\n";
    }
    return text;
  }

private:
  size_t below(size_t bound) { return random() % bound; }
  /// Placed in a loop, or turning at the last rank.
  Id rankOf(Id stage) const {
    Id round = stage / ranks, place = stage % ranks;
    return turns && round % 2 == 1 ? ranks - 1 - place : place;
  }

  std::vector<std::string> computeOf(Id rank) {
    std::vector<std::string> row;
    Id stages = ranks * chunks;
    for (Id s = 0; s < stages; ++s)
      for (Id k = 0; k < microbatches && rankOf(s) == rank; ++k)
        row.push_back(opName(Op::Forward, s, k));
    for (Id s = stages; s-- > 0;)
      for (Id k = 0; k < microbatches && rankOf(s) == rank; ++k) {
        row.push_back(opName(splits ? Op::BackwardInput : Op::Backward, s, k));
        if (splits)
          row.push_back(opName(Op::BackwardWeight, s, k));
      }
    return row;
  }

  void disturb(std::vector<std::string> &row) {
    for (size_t swaps = below(4); swaps > 0; --swaps) {
      size_t at = below(row.size());
      std::swap(row[at], row[std::min(row.size() - 1, at + 1 + below(3))]);
    }
  }

  /// A receive right before what needs it, a send right after what makes it,
  /// some in batches.
  std::vector<std::string>
  withMessagesOf(const std::vector<std::string> &compute) {
    std::vector<std::string> row;
    for (const std::string &name : compute) {
      OpRef op = *parseOpName(name);
      bool forward = op.op == Op::Forward;
      bool moves = op.op != Op::BackwardWeight;
      if (moves && !isEnd(op.stage, forward))
        row.push_back(opName(forward ? Op::RecvForward : Op::RecvBackward,
                             op.stage, op.microbatch));
      row.push_back(name);
      if (moves && !isEnd(op.stage, !forward))
        row.push_back(opName(forward ? Op::SendForward : Op::SendBackward,
                             op.stage, op.microbatch));
    }
    return batched(row);
  }
  /// Whether no message comes to a stage from below, or from above.
  bool isEnd(Id stage, bool below) const {
    if (below ? stage == 0 : stage + 1 == ranks * chunks)
      return true;
    return rankOf(below ? stage - 1 : stage + 1) == rankOf(stage);
  }

  std::vector<std::string> batched(const std::vector<std::string> &row) {
    std::vector<std::string> cells;
    for (size_t i = 0; i < row.size(); ++i) {
      bool both = i + 1 < row.size() && isMessage(parseOpName(row[i])->op) &&
                  isMessage(parseOpName(row[i + 1])->op) && below(3) == 0;
      cells.push_back(both ? "(" + row[i] + ";" + row[i + 1] + ")BATCH_P2P"
                           : row[i]);
      i += both;
    }
    return cells;
  }

  std::mt19937 random;
  Id ranks, chunks, microbatches;
  bool turns, splits;
};

} // namespace

static void checkText(const std::string &text) {
  Csv spaced(text, ' '); // as a spec's orders
  Csv csv(text);
  if (csv.isRead)
    checkPrinted(csv, ',');
  if (!csv.compilation.plan)
    return;
  verify::Result result = checkVerified(csv.plan(), /*buffers=*/false);
  if (csv.actions.hasMessages)
    checkEmitted(csv.plan(), /*isRight=*/false);
  else if (result.ok())
    checkLowered(csv);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  std::string text(reinterpret_cast<const char *>(data), size);
  checkText(text);
  checkText(
      Lists(static_cast<unsigned>(std::hash<std::string>()(text))).make());
  return 0;
}
