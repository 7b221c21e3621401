#include "compiler/schedules/OrdersText.h"

#include "ir/Ops.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/STLExtras.h"

#include <tuple>

namespace sluice {

namespace {

std::string number(uint64_t value) { return std::to_string(value); }

class OrderReader {
public:
  OrderReader(const OrderLimits &limits, Diagnostics &sink)
      : limits(limits), diagnostics(sink) {
    orders.firstOfRank.push_back(0);
  }

  void line(const OrderLine &of, char separator) {
    current = &of;
    for (llvm::StringRef rest = of.text; !rest.empty();) {
      auto [cell, after] = rest.split(separator);
      this->cell(cell.trim());
      rest = after;
    }
    orders.firstOfRank.push_back(static_cast<Id>(orders.entries.size()));
  }

  Orders take(uint32_t &stages) {
    stages = limits.given ? limits.stages
                          : static_cast<uint32_t>(rankOfStage.size());
    return std::move(orders);
  }

private:
  SourceLocation at(llvm::StringRef part) const {
    SourceLocation where = current->where;
    if (current->columnsKnown)
      where.column += static_cast<uint32_t>(part.data() - current->text.data());
    return where;
  }

  void fail(llvm::StringRef part, const std::string &message) {
    diagnostics.error(at(part), message);
  }

  void cell(llvm::StringRef text) {
    if (text.empty())
      return;
    llvm::StringRef inner = text;
    if (!inner.consume_front("("))
      return operation(text, false);
    if (!inner.consume_back(kPairEnd))
      return fail(text, "'" + escaped(text) +
                            "' is not an operation; a pair is "
                            "written (0F3;7B1)OVERLAP_F_B");
    auto [first, second] = inner.split(';');
    std::optional<OpRef> one = parseOpName(first.trim()),
                         other = parseOpName(second.trim());
    if (!one || !other)
      return fail(text,
                  "'" + escaped(text) + "' is not a pair of two operations");
    if (one->stage == other->stage || one->op != Op::Forward ||
        other->op == Op::Forward)
      return fail(text, text.str() + " is not a forward and then a backward of "
                                     "another stage");
    operation(first.trim(), true);
    operation(second.trim(), false);
  }

  void operation(llvm::StringRef text, bool joined) {
    std::optional<OpRef> ref = parseOpName(std::string_view(text));
    if (!ref)
      return fail(text, "'" + escaped(text) +
                            "' is not an operation; they are written 0F3 "
                            "(stage, one of F, B, I, W, microbatch)");
    if (!isCompute(ref->op) || ref->op == Op::Recompute)
      return fail(text, text.str() +
                            " does not compute; messages, sharding and "
                            "reductions are added by the compiler");
    if (ref->microbatch >= limits.microbatches)
      return fail(text, text.str() + " is of microbatch " +
                            number(ref->microbatch) + ", there are " +
                            number(limits.microbatches) +
                            " (pipeline.microbatches)");
    if (ref->stage >= limits.stages)
      return fail(text,
                  text.str() + " is of stage " + number(ref->stage) +
                      (limits.given ? ", there are " : ", must be below ") +
                      number(limits.stages));
    if (placed(text, ref->stage) && once(text, *ref))
      orders.entries.push_back({ref->stage, ref->microbatch, ref->op, joined});
  }

  /// A stage stays on the rank on which it was first.
  bool placed(llvm::StringRef text, Id stage) {
    Id rank = static_cast<Id>(orders.firstOfRank.size() - 1);
    if (stage >= rankOfStage.size())
      rankOfStage.resize(stage + size_t(1), kNone);
    Id &of = rankOfStage[stage];
    if (of == kNone)
      of = rank;
    if (of != rank)
      fail(text, text.str() + " is on rank " + number(rank) + ", stage " +
                     number(stage) + " before on rank " + number(of));
    return of == rank;
  }

  /// Forward once; backward once, whole or in its two parts.
  bool once(llvm::StringRef text, const OpRef &ref) {
    for (Op other :
         {Op::Forward, Op::Backward, Op::BackwardInput, Op::BackwardWeight}) {
      bool same = other == ref.op;
      bool both = (other == Op::Backward && ref.op != Op::Forward) ||
                  (ref.op == Op::Backward && other != Op::Forward);
      auto found = seen.find({ref.stage, ref.microbatch, unsigned(other)});
      if (!(same || both) || found == seen.end())
        continue;
      diagnostics
          .error(at(text), same
                               ? text.str() + " stands twice"
                               : text.str() + " stands beside " +
                                     opName(other, ref.stage, ref.microbatch) +
                                     ": a backward is whole or split, not both")
          .note("the other is here", found->second);
      return false;
    }
    seen[{ref.stage, ref.microbatch, unsigned(ref.op)}] = at(text);
    return true;
  }

  const OrderLimits &limits;
  Diagnostics &diagnostics;
  const OrderLine *current = nullptr;
  Orders orders;
  std::vector<Id> rankOfStage;
  llvm::DenseMap<std::tuple<Id, Id, unsigned>, SourceLocation> seen;
};

} // namespace

Orders parseOrders(llvm::ArrayRef<OrderLine> lines, char separator,
                   const OrderLimits &limits, uint32_t &stages,
                   Diagnostics &diagnostics) {
  OrderReader reader(limits, diagnostics);
  for (const OrderLine &line : lines)
    reader.line(line, separator);
  return reader.take(stages);
}

} // namespace sluice
