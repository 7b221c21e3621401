//===- tests/mpi/DeadlockPlan.cpp - Writes a plan with a deadlock ---------===//
//
// deadlock_plan IN OUT: takes a 1f1b plan, and lets the last rank receive the
// third microbatch before it sends the gradients of the first, on one stream.
// The rank before sends that microbatch only after these gradients have come.
//
//===----------------------------------------------------------------------===//
#include "ir/PlanFile.h"

#include <algorithm>
#include <cstdio>
#include <vector>

using namespace sluice;

namespace {
struct Entry {
  uint32_t before; ///< its position
  PlanOp op;
  std::vector<uint32_t> waits;
  std::vector<Operand> operands;
};
} // namespace

static std::vector<Entry> entriesOf(const RankPlan &rank) {
  std::vector<Entry> entries;
  for (uint32_t i = 0; i < rank.ops.size(); ++i) {
    const auto waits = rank.waitsOf(i);
    const auto operands = rank.operandsOf(i);
    entries.push_back({i,
                       rank.ops[i],
                       {waits.begin(), waits.end()},
                       {operands.begin(), operands.end()}});
  }
  return entries;
}

static void assign(RankPlan &rank, const std::vector<Entry> &entries) {
  std::vector<uint32_t> now(entries.size());
  for (uint32_t i = 0; i < entries.size(); ++i)
    now[entries[i].before] = i;
  rank.ops.clear();
  rank.waits.clear();
  rank.operands.clear();
  for (const Entry &entry : entries) {
    PlanOp &op = rank.ops.emplace_back(entry.op);
    op.firstWait = static_cast<uint32_t>(rank.waits.size());
    op.firstOperand = static_cast<uint32_t>(rank.operands.size());
    for (uint32_t wait : entry.waits)
      rank.waits.push_back(now[wait]);
    rank.operands.insert(rank.operands.end(), entry.operands.begin(),
                         entry.operands.end());
  }
}

static bool lock(RankPlan &rank) {
  std::vector<Entry> entries = entriesOf(rank);
  const auto find = [&](Op op, Id microbatch) {
    return std::find_if(entries.begin(), entries.end(), [&](const Entry &e) {
      return e.op.op == op && e.op.microbatch == microbatch;
    });
  };
  const auto send = find(Op::SendBackward, 0);
  const auto receive = find(Op::RecvForward, 2);
  if (receive == entries.end() || send > receive)
    return false;
  const uint8_t stream = receive->op.stream;
  receive->waits.clear(); // nothing comes, so that no data are overwritten
  std::rotate(send, receive, receive + 1);
  for (Entry &entry : entries)
    if (entry.op.op == Op::SendBackward)
      entry.op.stream = stream;
  assign(rank, entries);
  return true;
}

int main(int count, char **arguments) {
  Plan plan;
  if (count != 3 || !readPlanFile(arguments[1], plan).ok() ||
      !lock(plan.ranks.back()) || !writePlanFile(plan, arguments[2]).ok()) {
    std::fprintf(stderr, "deadlock_plan IN OUT: no 1f1b plan, or no file\n");
    return 1;
  }
  return 0;
}
