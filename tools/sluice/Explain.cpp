#include "tools/sluice/Explain.h"

#include "compiler/emit/Chart.h"
#include "compiler/emit/Table.h"
#include "compiler/simulate/Report.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/STLExtras.h"

#include <algorithm>

namespace sluice {

namespace {
/// The messages of one channel, or the operations of a collective.
struct Traffic {
  uint64_t messages = 0;
  Bytes bytes = 0;
  std::string first, last;

  void add(const PlanOp &op, Bytes size) {
    last = nameOf(op);
    if (messages++ == 0)
      first = last;
    bytes += size;
  }
  std::string names() const {
    return first + (messages > 1 ? " to " + last : "");
  }
  std::string size() const { return bytes == 0 ? "-" : formatBytes(bytes); }
};
} // namespace

static void explainChannels(const Plan &plan, llvm::raw_ostream &out) {
  std::vector<Traffic> traffic(plan.channels.size());
  for (const RankPlan &rank : plan.ranks)
    for (const PlanOp &op : rank.ops)
      if (isSend(op.op))
        traffic[op.channel].add(op, messageBytes(plan, rank, op));
  if (llvm::all_of(traffic, [](const Traffic &of) { return !of.messages; })) {
    out << "\nchannels: none, no rank sends to another\n";
    return;
  }
  out << "\nchannels: the n-th send meets the n-th receive\n";
  Table table({"from", "to", "communicator", "messages", "bytes"});
  for (size_t c = 0; c < plan.channels.size(); ++c)
    if (traffic[c].messages != 0)
      table.add({std::to_string(plan.channels[c].source),
                 std::to_string(plan.channels[c].destination),
                 std::to_string(plan.channels[c].communicator),
                 std::to_string(traffic[c].messages), traffic[c].size()},
                "   " + traffic[c].names());
  table.print(out);
}

static void explainCollectives(const Plan &plan, llvm::raw_ostream &out) {
  std::vector<Traffic> traffic(plan.collectives.size());
  for (Id r = 0; r < plan.ranks.size(); ++r)
    for (const PlanOp &op : plan.ranks[r].ops)
      if (isCollective(op.op) &&
          plan.collectives[op.channel].ranks.front() == r)
        traffic[op.channel].add(op, messageBytes(plan, plan.ranks[r], op));
  if (llvm::all_of(traffic, [](const Traffic &of) { return !of.messages; }))
    return;
  out << "\ncollectives: the n-th operations of all ranks meet\n";
  Table table({"communicator", "operations", "bytes", "ranks"});
  for (size_t c = 0; c < plan.collectives.size(); ++c) {
    const Collective &of = plan.collectives[c];
    if (traffic[c].messages == 0)
      continue;
    std::string ranks;
    for (Id rank : of.ranks)
      ranks += (ranks.empty() ? "" : " ") + std::to_string(rank);
    if (of.overReplicas)
      ranks += " of " + std::to_string(plan.replicas) + " replicas";
    table.add({std::to_string(of.communicator),
               std::to_string(traffic[c].messages), traffic[c].size(), ranks},
              "   " + traffic[c].names());
  }
  table.print(out);
}

/// Of what holds without one queue for all messages of a rank: what it needs.
static void explainQueues(const verify::Result &result,
                          llvm::raw_ostream &out) {
  out << "\none queue for all communication of a rank would not do: it needs ";
  auto strictest = llvm::find_if(verify::kProgressModels, [&](auto model) {
    return result.holdsUnder(model);
  });
  switch (*strictest) {
  case verify::Progress::Rank: // told as an order
  case verify::Progress::Pair:
    out << "one for each peer\n";
    return;
  case verify::Progress::Edge:
    out << "one for each peer and direction\n";
    return;
  case verify::Progress::Stream:
    out << "the plan's own streams\n";
    return;
  }
}

/// One queue a rank holds them all in this order, groups in parentheses.
static void explainOrder(const Plan &plan, const verify::Options &options,
                         const verify::Result &result, llvm::raw_ostream &out) {
  constexpr size_t kShown = 24;
  out << "\ncommunication of each rank, in order: one queue for all of it "
         "would do";
  if (result.minBuffering.value_or(0) != 0)
    out << ", if sends may end while " << options.buffered
        << (options.buffered == 1 ? " message of a channel is"
                                  : " messages of a channel are")
        << " not received yet";
  out << '\n';
  for (Id r = 0; r < plan.ranks.size(); ++r) {
    size_t count = 0;
    out << "  rank " << r << ":";
    Id group = kNone;
    for (const PlanOp &op : plan.ranks[r].ops) {
      if (!isCommunication(op.op) || ++count > kShown)
        continue;
      if (group != kNone && op.group != group)
        out << " )";
      if (op.group != kNone && op.group != group)
        out << " (";
      group = op.group;
      out << ' ' << nameOf(op);
    }
    if (group != kNone)
      out << " )";
    if (count > kShown)
      out << " and " << count - kShown << " more";
    out << (count == 0 ? " none\n" : "\n");
  }
}

/// `values` as a line of bars, the largest of each column, from 0 to `top`.
static std::string chart(llvm::ArrayRef<Bytes> values, Bytes top) {
  size_t width = std::min(kChartWidth, values.size());
  std::vector<Bytes> columns;
  for (size_t column = 0; column < width; ++column) {
    size_t begin = values.size() * column / width,
           end = values.size() * (column + 1) / width;
    columns.push_back(
        *std::max_element(values.begin() + begin, values.begin() + end));
  }
  return barChart(columns, top, 1).front();
}

static void explainMemory(const Plan &plan, llvm::raw_ostream &out) {
  std::vector<std::vector<Bytes>> live;
  Bytes top = 0;
  for (const RankPlan &rank : plan.ranks) {
    live.push_back(liveBytes(rank));
    for (Bytes bytes : live.back())
      top = std::max(top, bytes);
  }
  if (top == 0) {
    out << "\nmemory: none to show, no buffer has a size\n";
    return;
  }
  out << "\nmemory in use along each list, full height " << formatBytes(top)
      << "\n";
  for (Id r = 0; r < plan.ranks.size(); ++r) {
    const RankPlan &rank = plan.ranks[r];
    if (rank.ops.empty())
      continue;
    auto most = std::max_element(live[r].begin(), live[r].end());
    out << "  rank " << r << " |" << chart(live[r], top) << "| most "
        << formatBytes(*most) << " at "
        << nameOf(rank.ops[most - live[r].begin()]) << ", arena "
        << formatBytes(rank.arenaBytes);
    if (plan.memoryLimit != 0)
      out << " of a limit of " << formatBytes(plan.memoryLimit);
    out << '\n';
  }
  out << "  buffers that share bytes are ordered by streams and events; the "
         "arena is all that is allocated\n";
}

void explainPlan(const Plan &plan, const verify::Options &options,
                 const verify::Result &result, llvm::raw_ostream &out) {
  explainChannels(plan, out);
  explainCollectives(plan, out);
  if (result.holdsUnder(verify::Progress::Rank))
    explainOrder(plan, options, result, out);
  else
    explainQueues(result, out);
  explainMemory(plan, out);
}

} // namespace sluice
