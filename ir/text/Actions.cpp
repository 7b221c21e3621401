#include "ir/text/Actions.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"

#include <utility>

namespace sluice {

namespace {

constexpr llvm::StringRef kBatchEnd = ")BATCH_P2P";
constexpr llvm::StringRef kReduce = "REDUCE_GRAD";

class ActionReader {
public:
  ActionReader(char separates, Diagnostics &sink)
      : separator(separates), diagnostics(sink) {
    actions.firstOfRank.push_back(0);
  }

  void line(const ActionLine &of) {
    current = &of;
    llvm::StringRef rest = of.text;
    bool more = !rest.empty();
    while (more) {
      size_t end = rest.find(separator);
      more = end != llvm::StringRef::npos;
      cell(rest.substr(0, end));
      rest = more ? rest.drop_front(end + 1) : "";
    }
    actions.firstOfRank.push_back(static_cast<uint32_t>(actions.list.size()));
  }

  Actions take() {
    if (separator == ',' && actions.hasMessages)
      for (SourceLocation blank : blanks)
        diagnostics.error(blank, "a blank cell: a file with messages is taken "
                                 "as it stands, and every cell is an action");
    return std::move(actions);
  }

private:
  uint32_t columnOf(llvm::StringRef part) const {
    return static_cast<uint32_t>(part.data() - current->text.data()) +
           current->where.column;
  }
  SourceLocation at(llvm::StringRef part) const {
    SourceLocation where = current->where;
    if (current->columnsKnown)
      where.column = columnOf(part);
    return where;
  }
  bool fail(llvm::StringRef part, const std::string &message) {
    diagnostics.error(at(part), message);
    return false;
  }

  void cell(llvm::StringRef text) {
    llvm::StringRef inner = text.trim();
    if (separator == ',' && inner.size() > 1 && inner.front() == '"' &&
        inner.back() == '"')
      inner = inner.drop_front().drop_back().trim();
    if (inner.empty()) {
      if (blanks.size() < kMostBlanks)
        blanks.push_back(at(text));
    } else if (inner.front() == '(') {
      members(inner);
    } else {
      action(inner, kNone);
    }
  }

  /// A pair that runs together, or a batch of messages.
  void members(llvm::StringRef text) {
    llvm::StringRef inner = text.drop_front();
    bool isPair = inner.consume_back(kPairEnd);
    if (!isPair && !inner.consume_back(kBatchEnd)) {
      fail(text, "'" + escaped(text) +
                     "' is not an operation; a pair is written "
                     "(0F3;7B1)OVERLAP_F_B");
      return;
    }
    auto first = static_cast<uint32_t>(actions.list.size());
    bool good = true;
    for (bool more = true; more;) {
      size_t end = inner.find(';');
      more = end != llvm::StringRef::npos;
      good &= action(inner.substr(0, end).trim(), groups);
      inner = more ? inner.drop_front(end + 1) : "";
    }
    ++groups;
    if (good)
      isPair ? checkPair(text, first) : checkBatch(text, first);
  }

  void checkPair(llvm::StringRef text, uint32_t first) {
    if (actions.list.size() != first + size_t(2))
      fail(text, "'" + escaped(text) + "' is not a pair of two operations");
    else if (const Action &one = actions.list[first],
             &other = actions.list[first + 1];
             one.stage == other.stage || one.op != Op::Forward ||
             other.op == Op::Forward || !isCompute(other.op))
      fail(text, text.str() + " is not a forward and then a backward of "
                              "another stage");
  }

  void checkBatch(llvm::StringRef text, uint32_t first) {
    for (const Action &each : llvm::ArrayRef(actions.list).drop_front(first))
      if (!isMessage(each.op)) {
        fail(text, text.str() + " is not a batch of messages");
        return;
      }
  }

  bool action(llvm::StringRef text, Id group) {
    std::optional<OpRef> ref = parseOpName(std::string_view(text));
    if (!ref)
      return other(text);
    if (!info(ref->op).perMicrobatch || ref->op == Op::Recompute)
      return notAnAction(text);
    actions.hasMessages |= isMessage(ref->op);
    actions.list.push_back(
        {ref->stage, ref->microbatch, group, columnOf(text), ref->op});
    return true;
  }

  /// What is no operation of ours: what shards or waits, or a fault.
  bool other(llvm::StringRef text) {
    llvm::StringRef type = text.ltrim("0123456789");
    bool hasStage = type.size() != text.size();
    if (hasStage && type == kReduce)
      return actions.reducesGradients = true;
    if (hasStage &&
        (type == "UNSHARD" || type == "RESHARD" || type == "WAIT_REDUCE_GRAD"))
      return true;
    if (type.consume_front("WAIT_")) {
      llvm::StringRef stage = text.take_until([](char c) { return c == 'W'; });
      std::optional<OpRef> send = parseOpName(stage.str() + type.str());
      if (send && info(send->op).perMicrobatch && isSend(send->op)) {
        actions.sendWaits.push_back(
            {static_cast<uint32_t>(actions.list.size()),
             static_cast<Id>(actions.firstOfRank.size() - 1),
             {send->stage, send->microbatch, kNone, columnOf(text), send->op}});
        return actions.hasMessages = true;
      }
    }
    if (hasStage && type.rtrim("0123456789") == "BW")
      return oldLetters(text);
    return notAnAction(text);
  }

  /// Told once: all of the file is meant.
  bool oldLetters(llvm::StringRef text) {
    if (!std::exchange(isOld, true))
      fail(text, text.str() +
                     " is written in PyTorch's old letters, in which BW is "
                     "the full backward and B the one for inputs only: write "
                     "I for B and B for BW in the whole file");
    return false;
  }

  bool notAnAction(llvm::StringRef text) {
    return fail(text, "'" + escaped(text) +
                          "' is not an operation; they are written 0F3 "
                          "(stage, one of F, B, I, W, microbatch)");
  }

  static constexpr size_t kMostBlanks = 100;

  char separator;
  Diagnostics &diagnostics;
  const ActionLine *current = nullptr;
  Actions actions;
  std::vector<SourceLocation> blanks;
  Id groups = 0;
  bool isOld = false;
};

} // namespace

Actions parseActions(std::span<const ActionLine> lines, char separator,
                     Diagnostics &diagnostics) {
  ActionReader reader(separator, diagnostics);
  for (const ActionLine &line : lines)
    reader.line(line);
  return reader.take();
}

std::vector<ActionLine> linesOfCsv(std::string_view text, uint32_t file) {
  llvm::StringRef rest = text;
  uint32_t column = rest.consume_front("\xef\xbb\xbf") ? 4 : 1; // a mark
  rest = rest.rtrim();
  std::vector<ActionLine> lines;
  for (uint32_t row = 1; !rest.empty(); ++row, column = 1) {
    auto [line, after] = rest.split('\n');
    lines.push_back({line.rtrim('\r'), {file, row, column}, true});
    rest = after;
  }
  return lines;
}

} // namespace sluice
