//===- ir/text/Actions.h - Schedules as PyTorch writes them ---------------===//
//
// PyTorch's schedule CSV has a row a rank and an action a cell:
//   0F3 0I3 0W3 0B3           computes (stage, type, microbatch)
//   0SEND_F3 1RECV_F3 ...     sends and receives; each names its own stage
//   0WAIT_SEND_F3 ...         holds the rank until the send has ended
//   0UNSHARD 0RESHARD 0REDUCE_GRAD 0WAIT_REDUCE_GRAD
//                             parameters and gradients of a stage's copies
//   (0F3;1B2)OVERLAP_F_B      runs both together
//   (0SEND_F3;0RECV_B1)BATCH_P2P
// The reader is strict where PyTorch's is lax: it refuses what is no action,
// rather than read a part of it.
//
//===----------------------------------------------------------------------===//
#ifndef SLUICE_IR_TEXT_ACTIONS_H
#define SLUICE_IR_TEXT_ACTIONS_H

#include "ir/Diagnostics.h"
#include "ir/Ops.h"

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sluice {

/// Whether PyTorch's schedule CSV has the operation.
constexpr bool isInCsv(Op op) {
  return info(op).perMicrobatch && op != Op::Recompute && !isCopy(op);
}

/// One action; of a cell in parentheses, one of its members.
struct Action {
  Id stage;
  Id microbatch;
  Id group;        ///< members of one cell share a number; kNone outside
  uint32_t column; ///< of its line, 1-based, in bytes
  Op op;
};

/// What is no operation of a plan: what moves parameters and gradients between
/// the copies of a stage, which takes no time here, and waits for sends.
enum class AsideKind : uint8_t {
  Unshard,
  Reshard,
  ReduceGrad,
  WaitReduceGrad,
  WaitSendForward,
  WaitSendBackward,
};

/// One of these. What stands behind a wait for a send on its rank starts after
/// the send's end.
struct Aside {
  Id stage;
  Id microbatch;   ///< of a wait for a send, else kNone
  uint32_t before; ///< position in Actions::list of the action behind it
  uint32_t column; ///< as of an Action
  AsideKind kind;
};

/// The send that is waited for, if that is its kind.
std::optional<OpRef> sendOf(const Aside &aside);
/// "0REDUCE_GRAD", "1WAIT_SEND_B3".
std::string nameOf(const Aside &aside);

/// The actions of all ranks.
struct Actions {
  std::vector<Action> list;           ///< rank after rank
  std::vector<uint32_t> firstOfRank;  ///< ranks + 1
  std::vector<Aside> asides;          ///< rank after rank
  std::vector<uint32_t> firstAsideOf; ///< ranks + 1
  bool hasMessages = false;           ///< or waits for them

  uint32_t ranks() const {
    return static_cast<uint32_t>(firstOfRank.size()) - 1;
  }
  std::span<const Action> rank(Id r) const {
    return std::span(list).subspan(firstOfRank[r],
                                   firstOfRank[r + 1] - firstOfRank[r]);
  }
  std::span<const Aside> asidesOf(Id r) const {
    return std::span(asides).subspan(firstAsideOf[r],
                                     firstAsideOf[r + 1] - firstAsideOf[r]);
  }
};

/// Whether `type`, what stands between stage and microbatch in capital letters,
/// is one of a row's operations or asides; `numbered` if a microbatch follows.
bool isActionType(std::string_view type, bool numbered);

/// Leaves out messages and waits for them.
void dropMessages(Actions &actions);

/// The actions of one rank in a source.
struct ActionLine {
  std::string_view text;
  SourceLocation where;     ///< of the first character
  bool columnsKnown = true; ///< false: faults point to `where`
};

/// Reads lines whose actions are parted by `separator`. Blanks count as
/// nothing, but are refused where there are messages and the separator is a
/// comma. Tells every fault, and leaves out what it is about. Linear. A row of
/// a CSV that is a header or a comment is one fault.
Actions parseActions(std::span<const ActionLine> lines, char separator,
                     Diagnostics &diagnostics);

/// The rows of a CSV; cells may stand in quotes. `file` is its number in the
/// diagnostics.
std::vector<ActionLine> linesOfCsv(std::string_view text, uint32_t file);

} // namespace sluice

#endif // SLUICE_IR_TEXT_ACTIONS_H
