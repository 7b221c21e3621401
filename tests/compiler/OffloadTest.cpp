//===- tests/compiler/OffloadTest.cpp - To host memory and back -----------===//
#include "ir/LiveBytes.h"
#include "ir/verify/Verify.h"
#include "tests/compiler/ScheduleForTests.h"

#include <algorithm>
#include <functional>

using namespace sluice;
using namespace sluice::tests;

namespace {

using Sizes = std::vector<Bytes>;

/// Four stages and eight microbatches, F = 1, B = 2; each microbatch saves 1024
/// bytes, which a copy moves in 1. No messages to wait for.
std::string spec(const std::string &pipeline,
                 const std::string &link = "bandwidth: 1024",
                 const std::string &layer = "") {
  return "sluice: 1\nmodel:\n"
         "  layers: [{name: l, repeat: 4, forward: 1, backward: 2, "
         "activation_bytes: 1024" +
         layer + "}]\npipeline: {ranks: 4, microbatches: 8" + pipeline +
         "}\ncluster: {host_link: {" + link + "}}\n";
}

/// What a rank computes and copies, in order of its list.
std::string listOf(const RankPlan &rank) {
  std::string list;
  for (const PlanOp &op : rank.ops)
    if (isCompute(op.op) || isCopy(op.op))
      list += (list.empty() ? "" : " ") + nameOf(op);
  return list;
}

std::vector<Bytes> activationsOf(const Report &report) {
  unsigned heading = headingOf(static_cast<unsigned>(BufferKind::Saved));
  std::vector<Bytes> bytes;
  for (const RankReport &rank : report.perRank)
    bytes.push_back(rank.memory.byHeading[heading]);
  return bytes;
}

Bytes most(const std::vector<Bytes> &bytes) {
  return *std::max_element(bytes.begin(), bytes.end());
}

std::string shown(verify::FindingKind kind, const verify::Result &result) {
  std::string text;
  for (const verify::Finding &finding : result.errors)
    if (finding.kind == kind)
      text += finding.message + "\n";
  return text;
}

/// The n-th operation of a kind on rank 0.
PlanOp &find(Plan &plan, Op op, Id microbatch) {
  std::vector<PlanOp> &ops = plan.ranks[0].ops;
  auto found = std::find_if(ops.begin(), ops.end(), [&](const PlanOp &each) {
    return each.op == op && each.microbatch == microbatch;
  });
  REQUIRE(found != ops.end());
  return *found;
}

Operand &operandOf(Plan &plan, const PlanOp &op, uint32_t nth) {
  return plan.ranks[0].operands[op.firstOperand + nth];
}

/// Lets the backward of a microbatch use what its forward wrote, not what has
/// come back.
void readInPlace(Plan &plan, Id microbatch) {
  const PlanOp &out = find(plan, Op::Offload, microbatch);
  const PlanOp &in = find(plan, Op::Reload, microbatch);
  const PlanOp &backward = find(plan, Op::Backward, microbatch);
  for (uint32_t i = backward.firstOperand; i < (&backward + 1)->firstOperand;
       ++i)
    for (uint32_t nth : {0u, 1u})
      if (Operand &used = plan.ranks[0].operands[i];
          used.buffer == operandOf(plan, in, nth + 1).buffer)
        used.buffer = operandOf(plan, out, nth).buffer;
}

Plan planOf(const std::string &text,
            const Pipeline &pipeline = fullPipeline()) {
  Compiled compiled(text, pipeline);
  INFO(text << compiled.diagnostics.render());
  REQUIRE(compiled.ok);
  return *compiled.compilation.plan;
}

} // namespace

// F0 is followed by F1, F2 and F3 until B0 needs what it left: it goes while F1
// runs and comes back while F3 does. On rank 1 only F1 and F2 stand between F0
// and B0, so those stay; on ranks 2 and 3 all do.
TEST_CASE("offload: a copy goes with the next computation, and comes back with "
          "the one before its backward") {
  Plan plan = planOf(spec(", offload: activations"));
  CHECK(listOf(plan.ranks[0]) ==
        "0F0 0F1 0OFFLOAD0 0F2 0OFFLOAD1 0RELOAD0 0F3 0OFFLOAD2 0B0 0OFFLOAD3 "
        "0RELOAD1 0F4 0B1 0OFFLOAD4 0RELOAD2 0F5 0B2 0OFFLOAD5 0RELOAD3 0F6 "
        "0B3 0OFFLOAD6 0RELOAD4 0F7 0RELOAD5 0B4 0OFFLOAD7 0RELOAD6 0B5 "
        "0RELOAD7 0B6 0B7");
  CHECK(listOf(plan.ranks[1]) ==
        "1F0 1F1 1F2 1OFFLOAD1 1B0 1OFFLOAD2 1RELOAD1 1F3 1B1 1OFFLOAD3 "
        "1RELOAD2 1F4 1B2 1OFFLOAD4 1RELOAD3 1F5 1B3 1OFFLOAD5 1RELOAD4 1F6 "
        "1B4 1OFFLOAD6 1RELOAD5 1F7 1RELOAD6 1B5 1B6 1B7");
  CHECK(listOf(plan.ranks[2]) ==
        "2F0 2F1 2B0 2F2 2B1 2F3 2B2 2F4 2B3 2F5 2B4 2F6 2B5 2F7 2B6 2B7");
  for (const RankPlan &rank : plan.ranks)
    for (const PlanOp &op : rank.ops)
      if (isCopy(op.op))
        CHECK(rank.streams[op.stream] ==
              (op.op == Op::Offload ? "offload" : "reload"));
}

// At 0F3 rank 0 holds what F2 has left, which goes, what F3 leaves, and what F0
// had left, which has come back; without offload four are in flight. Rank 1
// holds F0, F1 and F2 at 1F2: none has gone yet, as without. On the host are,
// when 0OFFLOAD3 ends, microbatches 1, 2 and 3, and never more: each RELOAD
// stands between two OFFLOAD from then on.
TEST_CASE("offload: what is held on the device and on the host") {
  Compiled without(spec("", "latency: 0"));
  Compiled with(spec(", offload: activations"));
  REQUIRE((without.ok && with.ok));
  CHECK(activationsOf(without.report()) == Sizes{4096, 3072, 2048, 1024});
  Report report = with.report();
  CHECK(activationsOf(report) == Sizes{3072, 3072, 2048, 1024});
  Sizes arenas, hosts, hostArenas, unmoved;
  for (const RankReport &rank : report.perRank) {
    arenas.push_back(rank.arenaBytes);
    hosts.push_back(rank.hostPeak);
    hostArenas.push_back(rank.hostArena);
    unmoved.push_back(rank.unmovedPeak);
  }
  CHECK(arenas == Sizes{3072, 3072, 2048, 1024});
  CHECK(unmoved == Sizes{4096, 3072, 2048, 1024});
  CHECK(hosts == Sizes{3072, 2048, 0, 0});
  CHECK(hostArenas == Sizes{3072, 2048, 0, 0});
  CHECK(toldBy(with).empty());
}

// However many microbatches gpipe has in flight, three are on the device: one
// that goes, one that is computed and one that comes.
TEST_CASE("offload: gpipe holds as much for many microbatches as for few") {
  for (uint32_t microbatches : {4u, 8u, 64u}) {
    Plan plan =
        planOf("sluice: 1\nmodel: {layers: [{name: l, repeat: 2, forward: 1, "
               "backward: 2, activation_bytes: 1024}]}\npipeline: {ranks: 2, "
               "microbatches: " +
               std::to_string(microbatches) +
               ", schedule: gpipe, offload: activations}\n"
               "cluster: {host_link: {bandwidth: 1024}}\n");
    for (const RankPlan &rank : plan.ranks) {
      CHECK(most(liveBytes(rank)) == 3072);
      CHECK(rank.arenaBytes == 3072);
      CHECK(most(liveBytesUnmoved(rank)) == 1024 * microbatches);
    }
  }
}

// By recompute policy: F leaves a checkpoint of 256 bytes, which R needs, or
// what is kept.
TEST_CASE("offload: what R starts from is moved where there is an R") {
  for (auto [policy, kind, bytes] :
       {std::tuple("full", BufferKind::Checkpoint, 256u),
        std::tuple("selective", BufferKind::Kept, 768u)}) {
    Plan plan = planOf(spec(", schedule: gpipe, offload: activations, "
                            "recompute: " +
                                std::string(policy),
                            "bandwidth: 1024",
                            ", kept_for_weight: 768, checkpoint_bytes: 256"));
    const RankPlan &rank = plan.ranks[0];
    unsigned copies = 0;
    for (uint32_t at = 0; at < rank.ops.size(); ++at) {
      if (!isCopy(rank.ops[at].op))
        continue;
      ++copies;
      CHECK(copiedBytes(rank, at) == bytes);
      for (Operand used : rank.operandsOf(at)) {
        BufferKind of = rank.buffers[used.buffer].kind;
        CHECK((of == kind || of == BufferKind::Offloaded));
      }
    }
    CHECK(copies == 16);
  }
}

// A copy of 1024 bytes takes 1 as F does, so it hides: 3 · (8 + 3) = 33. Twice
// as slow, each direction still runs one copy at a time.
TEST_CASE("offload: copies take the link's time, one at a time each way") {
  for (auto [link, time, makespan] :
       {std::tuple("bandwidth: 1024", 1.0, 33.0),
        std::tuple("latency: 0", 0.0, 33.0),
        std::tuple("latency: 1, bandwidth: 256", 5.0, 0.0)}) {
    Plan plan = planOf(spec(", offload: activations", link));
    std::optional<PlanTiming> timing = simulatePlan(plan);
    REQUIRE(timing);
    if (makespan != 0)
      CHECK(timing->makespan == ticksOf(makespan));
    else
      CHECK(timing->makespan > ticksOf(33));
    Ticks free[2] = {0, 0};
    for (uint32_t at = 0; at < plan.ranks[0].ops.size(); ++at) {
      const PlanOp &op = plan.ranks[0].ops[at];
      if (!isCopy(op.op))
        continue;
      Ticks start = timing->start[0][at], end = timing->end[0][at];
      CHECK(end - start == ticksOf(time));
      Ticks &before = free[op.op == Op::Reload];
      CHECK(start >= before);
      before = end;
    }
  }
}

// Two streams of one direction share its link; a latency occupies nothing.
TEST_CASE("offload: streams share the link of a direction") {
  Plan plan = planOf(spec(", schedule: gpipe, offload: activations",
                          "latency: 2, bandwidth: 1024"));
  RankPlan rank;
  rank.streams = {"compute", "a", "b", "c"};
  rank.buffers = {{0, 1024, 0, BufferKind::Saved},
                  {0, 1024, 0, BufferKind::Offloaded}};
  for (uint32_t at = 0; at < 3; ++at) {
    Op op = at == 2 ? Op::Reload : Op::Offload;
    rank.ops.push_back(
        {0, at, kNone, kNone, 0, 2 * at, op, static_cast<uint8_t>(at + 1)});
    rank.operands.push_back(operand(0, Access::Read));
    rank.operands.push_back(operand(1, Access::Write));
  }
  plan.ranks = {rank};
  plan.channels.clear();
  std::optional<PlanTiming> timing = simulatePlan(plan);
  REQUIRE(timing);
  using Times = std::vector<Ticks>;
  CHECK(timing->start[0] == Times{0, ticksOf(1), 0});
  CHECK(timing->end[0] == Times{ticksOf(3), ticksOf(4), ticksOf(3)});
}

TEST_CASE("offload: keys that do not fit or have no effect are told") {
  CHECK(toldBy(Compiled(spec(", offload: [activations, none]"))) ==
        "4:48: error: offload has 2 entries, there are 4 stages\n");
  CHECK(toldBy(Compiled(spec(", offload: all"))) ==
        "4:48: error: pipeline.offload is all, must be none or activations, or "
        "a list of one per stage\n");
  CHECK(toldBy(Compiled(spec(", schedule: forward-only, offload: "
                             "activations"))) ==
        "4:72: warning: pipeline.offload has no effect with schedule "
        "forward-only, which has no backward\n");
  CHECK(toldBy(Compiled(spec(""))) ==
        "5:11: warning: cluster.host_link has no effect without "
        "pipeline.offload\n");
  std::string without = spec(", offload: activations");
  without.resize(without.find("cluster"));
  CHECK(toldBy(Compiled(without)) ==
        "4:48: error: pipeline.offload may move 1.00 KiB a microbatch and "
        "stage to host memory, but cluster.host_link is not given\n"
        "note: host_link: {bandwidth: 1MB}, bytes in a unit of time, under "
        "cluster says how fast; without bandwidth size does not matter\n");
  // Nothing to move needs no link.
  CHECK(toldBy(Compiled("sluice: 1\nmodel: {layers: [{name: l, repeat: 4, "
                        "forward: 1, backward: 2}]}\npipeline: {ranks: 4, "
                        "microbatches: 8, offload: activations}\n")) == "");
  CHECK(toldBy(Compiled(spec(", offload: activations, warmup: auto, "
                             "memory_limit: 1MiB"))) ==
        "4:69: error: warmup: auto within a memory limit counts all bytes that "
        "are in flight, but pipeline.offload moves some away\n"
        "note: standard, or a list of one count per rank, goes with offload\n");
  // Two microbatches in flight at most leave nothing to gain.
  CHECK(toldBy(Compiled("sluice: 1\nmodel: {layers: [{name: l, repeat: 2, "
                        "forward: 1, backward: 2, activation_bytes: 1024}]}\n"
                        "pipeline: {ranks: 2, microbatches: 8, offload: "
                        "activations}\n"
                        "cluster: {host_link: {latency: 0}}\n")) ==
        "3:48: warning: pipeline.offload does not lower the largest peak of a "
        "rank: 2.00 KiB with it and 2.00 KiB without\n"
        "note: what a forward leaves is moved where its rank computes at least "
        "three times between it and its backward: once while it goes, once "
        "while it comes back, and once in between\n");
}

TEST_CASE("offload: the memory limit is the device's, apart from the host's") {
  CHECK(Compiled(spec(", offload: activations, memory_limit: 3072")).ok);
  CHECK_FALSE(Compiled(spec(", memory_limit: 3072")).ok);
  CHECK_FALSE(Compiled(spec(", offload: activations, memory_limit: 3071")).ok);
}

TEST_CASE("offload: plans that lose or mix what is moved are refused") {
  const std::string text = spec(", schedule: gpipe, offload: activations",
                                "bandwidth: 1024", ", kept_for_weight: 256");
  const Plan plan = planOf(text, pipelineBefore("assign-buffers"));
  using Kind = verify::FindingKind;
  REQUIRE(verify::verifyPlan(plan).ok());
  auto told = [&](Kind kind, const std::function<void(Plan &)> &change) {
    Plan other = plan;
    change(other);
    return shown(kind, verify::verifyPlan(other));
  };

  CHECK(told(Kind::Malformed,
             [](Plan &other) { other.stages[0].offload = false; })
            .starts_with("0OFFLOAD0 moves what stage 0 saves, which is not "
                         "offloaded\n"));
  CHECK(told(Kind::Missing, [](Plan &other) {
          find(other, Op::Reload, 3).microbatch = 2;
        }) == "0RELOAD3 is missing\n");
  CHECK(told(Kind::Duplicate, [](Plan &other) {
          find(other, Op::Reload, 3).microbatch = 2;
        }) == "0RELOAD2 stands twice\n");
  // Comes back from where another microbatch was put.
  CHECK(told(Kind::Order, [](Plan &other) {
          operandOf(other, find(other, Op::Reload, 3), 0).buffer =
              operandOf(other, find(other, Op::Reload, 4), 0).buffer;
        }).starts_with("0RELOAD3 needs what 0OFFLOAD3 has moved, buffer "));
  // Nothing holds the copy back until the forward has ended.
  CHECK(told(Kind::Order, [](Plan &other) {
          const PlanOp &copy = find(other, Op::Offload, 3);
          for (uint32_t i = copy.firstWait; i < (&copy + 1)->firstWait; ++i)
            other.ranks[0].waits[i] = 0;
        }).find("0OFFLOAD3 reads buffer ") != std::string::npos);
  // A piece less goes.
  CHECK(
      told(Kind::Order, [](Plan &other) {
        PlanOp &copy = find(other, Op::Offload, 3);
        operandOf(other, copy, 0) = operandOf(other, copy, 2);
      }).find("0OFFLOAD3 reads 0 of kind saved, not 1\n") != std::string::npos);
  // The host's buffer is too small.
  CHECK(told(Kind::Malformed, [](Plan &other) {
          Id host = operandOf(other, find(other, Op::Offload, 3), 2).buffer;
          other.ranks[0].buffers[host].bytes = 1000;
        }).find("writes 1024 bytes to buffer ") != std::string::npos);
  // The backward reads where its forward wrote, which is still there ...
  auto inPlace = [](Plan &other) { readInPlace(other, 0); };
  CHECK(told(Kind::Lifetime, inPlace).empty());
  // ... or which others have taken since.
  Plan shared = planOf(text);
  readInPlace(shared, 0);
  std::string order = shown(Kind::Order, verify::verifyPlan(shared));
  CHECK(order.find("0B0 needs what 0F0 saved, buffer ") != std::string::npos);
  CHECK(told(Kind::Malformed, [](Plan &other) {
          find(other, Op::Offload, 3).stream = kComputeStream;
        }) == "0OFFLOAD3 is a copy on stream 0, which computes\n");
}

// Cut differently, the kept part would come back among the saved.
TEST_CASE("offload: what comes back is cut as it went") {
  Plan plan = planOf(spec(", schedule: gpipe, offload: activations",
                          "bandwidth: 1024", ", kept_for_weight: 256"),
                     pipelineBefore("assign-buffers"));
  Id back = operandOf(plan, find(plan, Op::Reload, 3), 1).buffer;
  Buffer &saved = plan.ranks[0].buffers[back];
  REQUIRE(saved.kind == BufferKind::Saved);
  plan.ranks[0].arenaBytes += 4096;
  saved.offset = plan.ranks[0].arenaBytes - 2048;
  saved.bytes += 100;
  CHECK(shown(verify::FindingKind::Order, verify::verifyPlan(plan))
            .find("0RELOAD3 brings back saved 868, kept 256, but 0OFFLOAD3 has "
                  "moved saved 768, kept 256\n") != std::string::npos);
}

TEST_CASE("offload: copies stay out of PyTorch's CSV") {
  Compiled compiled(spec(", offload: activations"));
  REQUIRE(compiled.ok);
  std::string text;
  llvm::raw_string_ostream out(text);
  emitTorchCsvComms(*compiled.compilation.plan, out);
  CHECK(text.find("LOAD") == std::string::npos);
  CHECK(text.find("0F0,0SEND_F0") == 0);
}
