#include "ir/text/Actions.h"
#include "ir/Groups.h"
#include "ir/text/Faults.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringRef.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace sluice {

namespace {

constexpr llvm::StringRef kBatchEnd = ")BATCH_P2P";

/// By AsideKind: what stands behind the stage, and what is waited for.
struct AsideInfo {
  llvm::StringRef text;
  std::optional<Op> send;
};
constexpr AsideInfo kAsides[] = {
    {"UNSHARD", {}},
    {"RESHARD", {}},
    {"REDUCE_GRAD", {}},
    {"WAIT_REDUCE_GRAD", {}},
    {"WAIT_SEND_F", Op::SendForward},
    {"WAIT_SEND_B", Op::SendBackward},
};
const AsideInfo &info(AsideKind kind) {
  return kAsides[static_cast<unsigned>(kind)];
}

/// trim(), at once where there is nothing to trim.
llvm::StringRef trimmed(llvm::StringRef text) {
  bool isTrimmed = text.empty() || (!llvm::isSpace(text.front()) &&
                                    !llvm::isSpace(text.back()));
  return isTrimmed ? text : text.trim();
}

/// What `text` is that is no operation; its places in the lists are not set.
std::optional<Aside> parseAside(llvm::StringRef text) {
  llvm::StringRef type = text.ltrim("0123456789");
  llvm::StringRef stage = text.drop_back(type.size());
  for (const AsideInfo &each : kAsides) {
    if (!type.starts_with(each.text))
      continue;
    // Numbers are those of an operation; one without a microbatch gets one.
    llvm::StringRef microbatch = type.drop_front(each.text.size());
    Op op = each.send.value_or(Op::Forward);
    llvm::SmallString<64> name(stage);
    name += sluice::info(op).text;
    name += each.send ? microbatch : llvm::StringRef("0");
    std::optional<OpRef> ref = parseOpName(std::string_view(name.str()));
    if (ref && (each.send || microbatch.empty()))
      return Aside{ref->stage, each.send ? ref->microbatch : kNone, 0, 0,
                   static_cast<AsideKind>(&each - kAsides)};
  }
  return std::nullopt;
}

/// Whether `text` is an operation that a row can hold, or an aside.
bool isAction(llvm::StringRef text) {
  std::optional<OpRef> ref = parseOpName(std::string_view(text));
  return ref ? isActionType(info(ref->op).text, true)
             : parseAside(text).has_value();
}

/// A cell as messages quote it: the beginning of one that goes on and on.
std::string shown(llvm::StringRef text) {
  constexpr size_t kMost = 60;
  return escaped(text.take_front(kMost)) + (text.size() > kMost ? "..." : "");
}

/// `text` with each of its numbers made 0.
std::string withSmallNumbers(llvm::StringRef text) {
  std::string small;
  for (char c : text)
    if (!llvm::isDigit(c))
      small += c;
    else if (small.empty() || small.back() != '0')
      small += '0';
  return small;
}

/// What is meant by a cell that is no operation, where that can be told.
std::string meaningOf(llvm::StringRef text, char separator) {
  llvm::StringRef type = text.ltrim("0123456789");
  bool hasStage = type.size() != text.size();
  llvm::StringRef first = text.take_until(
      [](char c) { return llvm::StringRef(",; \t").contains(c); });
  if (first.size() != text.size() && isAction(first))
    return std::string(separator == ',' ? "cells are parted by commas"
                                        : "operations are parted by blanks") +
           ", members of a group by semicolons";
  if (std::string other = withSmallNumbers(text);
      other != text && isAction(other))
    return "numbers have no leading zeros and are at most " +
           std::to_string(kMaxNumber);
  if (isAction(text.upper()))
    return "letters are capital, as in " + shown(text.upper());
  if (!hasStage && isAction("0" + text.str()))
    return "its stage is missing, which stands first, as in 0" + shown(text);
  if (std::optional<Aside> of = parseAside(text.rtrim("0123456789"));
      of && !sendOf(*of))
    return "it is of a stage, without a microbatch: " + nameOf(*of);
  if (hasStage && type.starts_with("WAIT_SEND"))
    return "waits for sends are WAIT_SEND_F and WAIT_SEND_B, with a "
           "microbatch: 0WAIT_SEND_F3";
  if (hasStage && (type.starts_with("SEND") || type.starts_with("RECV")))
    return "messages are SEND_F and RECV_F (activations), SEND_B and RECV_B "
           "(gradients, also of a split backward), with a microbatch: 0SEND_F3";
  if (text.starts_with("(") && text.ends_with(")"))
    return "behind a group stands what it is: " + shown(text) +
           "BATCH_P2P of messages, (0F3;7B1)OVERLAP_F_B of a forward and a "
           "backward that run together";
  if (text.starts_with("("))
    return "a pair is written (0F3;7B1)OVERLAP_F_B, a batch "
           "(0SEND_F3;0RECV_B1)BATCH_P2P";
  return "they are written 0F3 (stage, one of F, B, I, W, microbatch)";
}

class ActionReader {
public:
  ActionReader(char separates, Diagnostics &sink)
      : separator(separates), faults(sink) {
    endRank();
  }

  void line(const ActionLine &of) {
    current = &of;
    llvm::StringRef rest = of.text;
    lastClose = rest.rfind(')');
    inHalfGroup = false;
    bool more = !rest.empty() && !isProse(rest);
    while (more) {
      size_t end = rest.find(separator);
      more = end != llvm::StringRef::npos;
      cell(rest.substr(0, end));
      rest = more ? rest.drop_front(end + 1) : "";
    }
    endRank();
  }

  Actions take() {
    tellProse();
    if (separator == ',' && actions.hasMessages)
      for (SourceLocation blank : blanks)
        fail(blank, "a blank cell: a file with messages is taken as it stands, "
                    "and every cell is an action");
    faults.finish();
    return std::move(actions);
  }

private:
  void endRank() {
    actions.firstOfRank.push_back(static_cast<uint32_t>(actions.list.size()));
    actions.firstAsideOf.push_back(
        static_cast<uint32_t>(actions.asides.size()));
  }
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
  bool fail(SourceLocation where, std::string message) {
    if (faults.admits(where))
      faults.tell(where, std::move(message));
    return false;
  }
  bool fail(llvm::StringRef part, std::string message) {
    return fail(at(part), std::move(message));
  }

  /// Lines that name no operation, beside others that do; if none does, what
  /// was read is something else.
  void tellProse() {
    bool isOther = !prose.empty() && actions.list.empty() &&
                   actions.asides.empty() && faults.seen() == 0;
    if (isOther)
      fail(prose.front(),
           "no row of this file names an operation: it is no schedule CSV, "
           "whose rows are ranks and whose cells are written 0F3 (stage, one "
           "of F, B, I, W, microbatch)");
    for (size_t i = 0; !isOther && i < prose.size(); ++i)
      fail(prose[i], "this row names no operation: every row is a rank, and "
                     "there is neither a header nor a comment");
  }

  /// A cell without the blanks and quotes around it.
  llvm::StringRef inside(llvm::StringRef cell) const {
    llvm::StringRef inner = trimmed(cell);
    if (separator == ',' && inner.size() > 1 && inner.front() == '"' &&
        inner.back() == '"')
      inner = inner.drop_front().drop_back().trim();
    return inner;
  }

  /// Whether a line is a header or a comment: told as a whole, at the end.
  bool isProse(llvm::StringRef line) {
    if (separator != ',')
      return false;
    llvm::StringRef rest = line;
    while (!rest.empty()) {
      auto [cell, after] = rest.split(separator);
      llvm::StringRef inner = inside(cell);
      if (!inner.empty() &&
          (llvm::isDigit(inner.front()) || inner.front() == '(' ||
           isAction("0" + inner.str())))
        return false;
      rest = after;
    }
    llvm::StringRef text = line.trim();
    if (text.trim(", \t\"").empty())
      return false; // blanks
    prose.push_back(at(text));
    return true;
  }

  void cell(llvm::StringRef text) {
    llvm::StringRef inner = inside(text);
    if (inHalfGroup) {
      inHalfGroup = !inner.contains(')');
    } else if (inner.empty()) {
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
      noGroup(text);
      return;
    }
    if (inner.trim().empty()) {
      fail(text, "'" + shown(text) + "' has no members");
      return;
    }
    auto first = static_cast<uint32_t>(actions.list.size());
    size_t asides = actions.asides.size();
    bool good = true;
    for (bool more = true; more;) {
      size_t end = inner.find(';');
      more = end != llvm::StringRef::npos;
      good &= action(trimmed(inner.substr(0, end)), groups);
      inner = more ? inner.drop_front(end + 1) : "";
    }
    ++groups;
    if (good && actions.asides.size() != asides)
      fail(text, "'" + shown(text) +
                     "' holds what is neither a message nor computes");
    else if (good)
      isPair ? checkPair(text, first) : checkBatch(text, first);
  }

  /// If a comma cut a group in two, the cells up to its end belong to the
  /// fault.
  void noGroup(llvm::StringRef text) {
    size_t end = text.data() + text.size() - current->text.data();
    inHalfGroup = separator == ',' && !text.contains(')') &&
                  lastClose != llvm::StringRef::npos && end < lastClose;
    if (inHalfGroup)
      fail(text, "the group that '" + shown(text) +
                     "' opens is cut by a comma: its members are parted by "
                     "semicolons, as in (0SEND_F3;0RECV_B1)BATCH_P2P");
    else
      notAnAction(text);
  }

  void checkPair(llvm::StringRef text, uint32_t first) {
    if (actions.list.size() != first + size_t(2))
      fail(text, "'" + shown(text) + "' is not a pair of two operations");
    else if (OpRef one = refOf(actions.list[first]),
             other = refOf(actions.list[first + 1]);
             one.op != Op::Forward || !runTogether(one, other))
      fail(text, shown(text) + " is not a forward and then a backward of "
                               "another microbatch");
    else if (one.stage == other.stage)
      fail(text, shown(text) + " is of one stage twice, and both would use its "
                               "one workspace: a pair is of two stages");
  }
  static OpRef refOf(const Action &action) {
    return {action.op, action.stage, action.microbatch};
  }

  void checkBatch(llvm::StringRef text, uint32_t first) {
    for (const Action &each : llvm::ArrayRef(actions.list).drop_front(first))
      if (!isMessage(each.op)) {
        fail(text, shown(text) + " is not a batch of messages");
        return;
      }
  }

  bool action(llvm::StringRef text, Id group) {
    std::optional<OpRef> ref = parseOpName(std::string_view(text));
    if (!ref)
      return aside(text);
    if (!isInCsv(ref->op))
      return notAnAction(text);
    actions.hasMessages |= isMessage(ref->op);
    actions.list.push_back(
        {ref->stage, ref->microbatch, group, columnOf(text), ref->op});
    return true;
  }

  /// What is no operation of ours: what shards or waits, or a fault.
  bool aside(llvm::StringRef text) {
    std::optional<Aside> aside = parseAside(text);
    if (!aside) {
      llvm::StringRef type = text.ltrim("0123456789");
      bool isOldName =
          type.size() != text.size() && type.rtrim("0123456789") == "BW";
      return isOldName ? oldLetters(text) : notAnAction(text);
    }
    aside->before = static_cast<uint32_t>(actions.list.size());
    aside->column = columnOf(text);
    actions.hasMessages |= info(aside->kind).send.has_value();
    actions.asides.push_back(*aside);
    return true;
  }

  /// Told once: all of the file is meant.
  bool oldLetters(llvm::StringRef text) {
    if (!std::exchange(isOld, true))
      fail(text, shown(text) +
                     " is written in PyTorch's old letters, in which BW is "
                     "the full backward and B the one for inputs only: write "
                     "I for B and B for BW in the whole file");
    return false;
  }

  bool notAnAction(llvm::StringRef text) {
    if (SourceLocation where = at(text); faults.admits(where))
      faults.tell(where, "'" + shown(text) + "' is not an operation; " +
                             meaningOf(text, separator));
    return false;
  }

  char separator;
  Faults faults;
  const ActionLine *current = nullptr;
  size_t lastClose = 0;     ///< position of the line's last ')'
  bool inHalfGroup = false; ///< up to the next ')' all is told
  Actions actions;
  std::vector<SourceLocation> blanks, prose;
  Id groups = 0;
  bool isOld = false;
};

} // namespace

std::optional<OpRef> sendOf(const Aside &aside) {
  std::optional<Op> send = info(aside.kind).send;
  return send ? std::optional(OpRef{*send, aside.stage, aside.microbatch})
              : std::nullopt;
}

std::string nameOf(const Aside &aside) {
  std::string name = std::to_string(aside.stage) + info(aside.kind).text.str();
  return info(aside.kind).send ? name + std::to_string(aside.microbatch) : name;
}

bool isActionType(std::string_view type, bool numbered) {
  std::optional<Op> op = opFromText(type);
  if (op && isInCsv(*op))
    return numbered;
  return std::ranges::any_of(kAsides, [&](const AsideInfo &aside) {
    return aside.text == llvm::StringRef(type) &&
           aside.send.has_value() == numbered;
  });
}

/// Leaves out of flat lists what `drops` says; `moved(i)` is told in order for
/// each entry and for the end where it comes to stand.
template <typename T, typename Drops, typename Moved>
static void dropFrom(std::vector<T> &list, Drops drops, Moved moved) {
  size_t kept = 0;
  for (size_t i = 0; i < list.size(); ++i) {
    moved(i, kept);
    if (!drops(list[i]))
      list[kept++] = list[i];
  }
  moved(list.size(), kept);
  list.resize(kept);
}

void dropMessages(Actions &actions) {
  std::vector<uint32_t> newPlace(actions.list.size() + 1);
  dropFrom(
      actions.list, [](const Action &each) { return isMessage(each.op); },
      [&](size_t from, size_t to) {
        newPlace[from] = static_cast<uint32_t>(to);
      });
  for (uint32_t &first : actions.firstOfRank)
    first = newPlace[first];
  std::vector<uint32_t> newAside(actions.asides.size() + 1);
  dropFrom(
      actions.asides, [](const Aside &each) { return !!sendOf(each); },
      [&](size_t from, size_t to) {
        newAside[from] = static_cast<uint32_t>(to);
      });
  for (uint32_t &first : actions.firstAsideOf)
    first = newAside[first];
  for (Aside &aside : actions.asides)
    aside.before = newPlace[aside.before];
  actions.hasMessages = false;
}

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
