// What a verifier that trusts too much would take: plans and schedules as
// people write them, each wrong in one way, with the whole answer.
#include "ir/text/Text.h"
#include "ir/verify/Verify.h"
#include "tests/Catch.h"
#include "tests/ir/MutantCheck.h"

using namespace sluice;
using namespace sluice::testing;
using verify::Finding;

namespace {

IrText read(const std::string &text) {
  Diagnostics diagnostics;
  std::optional<IrText> ir =
      parseIr("sluice-ir 1\n" + text, "test.ir", diagnostics);
  INFO(diagnostics.render());
  REQUIRE(ir);
  return std::move(*ir);
}

std::string allOf(const std::vector<Finding> &findings) {
  std::string text;
  for (const Finding &finding : findings)
    text += std::string(verify::findingKindName(finding.kind)) + ": " +
            finding.message + "\n";
  return text;
}

std::string errorsOf(const Plan &plan) {
  return allOf(verify::verifyPlan(plan).errors);
}
std::string errorsOf(const std::string &text) {
  IrText ir = read(text);
  return ir.plan
             ? errorsOf(*ir.plan)
             : allOf(verify::verifySchedule(*ir.graph, *ir.schedule).errors);
}

void replace(std::string &text, const std::string &old,
             const std::string &now) {
  size_t at = text.find(old);
  REQUIRE(at != std::string::npos);
  text.replace(at, old.size(), now);
}

std::string with(std::string text, const std::string &old,
                 const std::string &now) {
  replace(text, old, now);
  return text;
}

/// Copies of stage 0 on `ranks` ranks, each with a microbatch; each sends its
/// gradients to the next rank of a ring, and `added` names what it adds.
std::string ringOf(Id ranks, const std::string &added) {
  std::string text = "plan {\n  microbatches " + std::to_string(ranks) +
                     "\n  stage 0 layers 0+1 gradients 256\n";
  for (Id r = 0; r < ranks; ++r)
    text += "  channel " + std::to_string(r) + " rank " + std::to_string(r) +
            " -> " + std::to_string((r + 1) % ranks) + " communicator " +
            std::to_string(r) + "\n";
  for (Id r = 0; r < ranks; ++r) {
    std::string k = std::to_string(r);
    std::string send = "0SEND_G stream 1 channel " + k + " wait 1 read 0\n";
    std::string receive = "0RECV_G stream 2 channel " +
                          std::to_string((r + ranks - 1) % ranks) +
                          " write 1\n";
    text += "  rank " + k +
            " {\n    streams compute send receive\n    arena 4096\n"
            "    buffer 0 gradients stage 0 offset 0 bytes 256\n"
            "    buffer 1 copy_gradients stage 0 offset 256 bytes 256\n"
            "    buffer 2 saved stage 0 offset 512 bytes 0\n"
            "    0: 0F" +
            k + " write 2\n    1: 0B" + k +
            " update 0, 2\n    2: " + (r == 0 ? send : receive) +
            "    3: " + (r == 0 ? receive : send) +
            "    4: 0ADD_G wait 2, 3 update 0 read " + added +
            "\n    5: 0STEP read 0\n  }\n";
  }
  return text + "}\n";
}

} // namespace

TEST_CASE("verify: no table is made of what cannot be there") {
  Plan plan;
  plan.microbatches = 2'000'000'000;
  plan.stages.resize(8);
  RankPlan &rank = plan.ranks.emplace_back();
  rank.streams = {"compute"};
  rank.ops.push_back({0, 0, kNone, kNone, 0, 0, Op::Forward, 0});
  for (bool buffers : {true, false})
    CHECK(allOf(verify::verifyPlan(plan, {.buffers = buffers}).errors)
              .starts_with("missing: 16000000000 forwards are needed, there "
                           "are 1 operations\n"));
}

TEST_CASE("verify: what communicates names its channel or collective") {
  for (unsigned number = 0; number < kOpCount; ++number)
    for (uint8_t stream : {0, 1}) {
      auto op = static_cast<Op>(number);
      if (!isCommunication(op))
        continue;
      Plan plan;
      plan.microbatches = 1;
      plan.stages.resize(1);
      RankPlan &rank = plan.ranks.emplace_back();
      rank.streams = {"compute", "other"};
      Id microbatch = info(op).perMicrobatch ? 0 : kNone;
      rank.ops.push_back({0, microbatch, kNone, kNone, 0, 0, op, stream});
      std::string name = nameOf(rank.ops[0]);
      INFO(name);
      std::string what = isMessage(op) ? "a message" : "a collective";
      CHECK(errorsOf(plan) ==
            "malformed: " + name + " is " + what +
                (stream == 0     ? " on stream 0, which computes\n"
                 : isMessage(op) ? " without a channel\n"
                                 : ", but names none of the plan's\n"));
    }
}

TEST_CASE("verify: what no table can hold is told, whatever else is there") {
  for (const char *op : {"0F0", "0ADD_G", "0STEP"}) {
    INFO(op);
    std::string told =
        errorsOf("plan {\n  microbatches 2000000\n  stage 0\n  rank 0 {\n"
                 "    streams compute\n    0: " +
                 std::string(op) + "\n  }\n}\n");
    CHECK(told.find("missing: 2000000 forwards are needed, there are 1 "
                    "operations\n") == 0);
  }
}

TEST_CASE("verify: two copies of a stage add each other's gradients") {
  Plan plan = *read(ringOf(2, "1")).plan;
  CHECK(errorsOf(plan) == "");
  CHECK(!Explorer(plan).exploreCells(Queue::None).wrongData);
  std::string lonely = ringOf(2, "1");
  replace(lonely,
          "    4: 0ADD_G wait 2, 3 update 0 read 1\n    5: 0STEP read 0",
          "    4: 0STEP wait 2, 3 read 0");
  CHECK(errorsOf(lonely) == "missing: 0ADD_G is missing on rank 0: 2 ranks "
                            "hold stage 0\n");
  CHECK(Explorer(*read(lonely).plan).exploreCells(Queue::None).wrongData);
}

TEST_CASE(
    "verify: two copies exchange gradients, and those of one do not stand "
    "for those of another") {
  Plan ring = *read(ringOf(3, "1")).plan;
  CHECK(errorsOf(ring) == "malformed: 3 ranks hold stage 0: two can exchange "
                          "their gradients, more reduce them by "
                          "0ALL_REDUCE_G\n");
  CHECK(Explorer(ring).exploreCells(Queue::None).wrongData);
  Plan twice = *read(ringOf(3, "1, 1")).plan;
  CHECK(errorsOf(twice) ==
        "malformed: 3 ranks hold stage 0: two can exchange their gradients, "
        "more reduce them by 0ALL_REDUCE_G\n"
        "malformed: 0ADD_G names buffer 1 (copy_gradients) twice\n"
        "malformed: 0ADD_G names buffer 1 (copy_gradients) twice\n"
        "malformed: 0ADD_G names buffer 1 (copy_gradients) twice\n");
  CHECK(Explorer(twice).exploreCells(Queue::None).wrongData);
}

namespace {

/// Two stages of one rank, which runs 0F1 and 1B0 together, on these
/// workspaces.
std::string pairOn(const std::string &workspaces, const std::string &ofFirst,
                   const std::string &ofSecond) {
  std::string text = R"(plan {
  microbatches 2
  stage 0 layers 0+1 workspace 32
  stage 1 layers 1+1 workspace 32
  edge 0 -> 1 bytes 0
  rank 0 {
    streams compute
    arena 4096
)" + workspaces + R"(
    buffer 2 saved stage 0 offset 512 bytes 0
    buffer 3 saved stage 0 offset 512 bytes 0
    buffer 4 saved stage 1 offset 512 bytes 0
    buffer 5 saved stage 1 offset 512 bytes 0
    buffer 6 activation stage 0 offset 512 bytes 0
    buffer 7 activation stage 0 offset 512 bytes 0
    buffer 8 gradient stage 0 offset 512 bytes 0
    buffer 9 gradient stage 0 offset 512 bytes 0
    0: 0F0 update X write 6, 2
    1: 1F0 update Y read 6 write 4
    2: 0F1 group 0 update X write 7, 3
    3: 1B0 group 0 update Y, 4 write 8
    4: 1F1 update Y read 7 write 5
    5: 0B0 update X, 2 read 8
    6: 1B1 update Y, 5 write 9
    7: 0B1 update X, 3 read 9
  }
}
)";
  for (size_t at; (at = text.find_first_of("XY")) != std::string::npos;)
    text.replace(at, 1, text[at] == 'X' ? ofFirst : ofSecond);
  return text;
}

} // namespace

TEST_CASE("verify: an operation works on the workspace that its stage has") {
  const std::string own = "    buffer 0 workspace stage 0 offset 0 bytes 32\n"
                          "    buffer 1 workspace stage 1 offset 256 bytes 32";
  CHECK(errorsOf(pairOn(own, "0", "1")) == "");
  // What the runtime gives to a stage without one of its own is the first.
  const std::string shared = "    buffer 0 workspace offset 0 bytes 32\n"
                             "    buffer 1 workspace offset 256 bytes 32";
  CHECK(errorsOf(pairOn(shared, "0", "1")) ==
        "malformed: rank 0 has both buffer 0 (workspace) and buffer 1 "
        "(workspace) of no stage\n");
  CHECK(Explorer(*read(pairOn(shared, "0", "1")).plan).misbound);
  const std::string mixed = "    buffer 0 workspace offset 0 bytes 32\n"
                            "    buffer 1 workspace stage 1 offset 256 bytes "
                            "32";
  CHECK(errorsOf(pairOn(mixed, "0", "1")) == "");
  CHECK(!Explorer(*read(pairOn(mixed, "0", "1")).plan).misbound);
  std::string wrong = pairOn(mixed, "0", "1");
  replace(wrong, "1: 1F0 update 1", "1: 1F0 update 0");
  CHECK(errorsOf(wrong) == "order: 1F0 updates buffer 0 (workspace) of no "
                           "stage, but its own has buffer 1 (workspace)\n");
  CHECK(Explorer(*read(wrong).plan).misbound);
  wrong = with(pairOn(own, "0", "1"), "0: 0F0 update 0", "0: 0F0 update 1");
  CHECK(errorsOf(wrong) ==
        "order: 0F0 updates buffer 1 (workspace) of stage 1\n");
  // One for two that run together.
  CHECK(errorsOf(pairOn("    buffer 0 workspace offset 0 bytes 32\n"
                        "    buffer 1 activation stage 0 offset 256 bytes 0",
                        "0", "0")) ==
        "lifetime: 1B0 updates buffer 0 (workspace) while 0F1 may still use "
        "it: nothing makes it wait\n");
}

TEST_CASE("verify: a forward keeps one buffer for W, which its B reads too") {
  const std::string plan = R"(plan {
  microbatches 1
  stage 0 layers 0+1 forward 1 backward_input 1 backward_weight 1 activation 100
  rank 0 {
    streams compute
    arena 4096
    buffer 0 saved stage 0 offset 0 bytes 50
    buffer 1 kept stage 0 offset 256 bytes 50
    buffer 2 kept stage 0 offset 512 bytes 25
    0: 0F0 write 0, 1
    1: 0B0 update 0 read 1
  }
}
)";
  CHECK(errorsOf(plan) == "");
  CHECK(errorsOf(with(plan, "write 0, 1", "write 0, 1, 2")) ==
        "order: 0F0 writes 2 of kind kept, not 1\n");
  CHECK(errorsOf(with(plan, "read 1", "read 1, 1")) ==
        "malformed: 0B0 names buffer 1 (kept) twice\n");
  std::string left = with(with(plan, "bytes 50", "bytes 100"), " read 1", "");
  CHECK(errorsOf(left) == "order: 0B0 reads 0 of kind kept, not 1\n");
  CHECK(Explorer(*read(left).plan).lacksOperand);
  CHECK(errorsOf(with(left, "write 0, 1", "write 0")) == "");
}

TEST_CASE("verify: what the readers refuse of a plan, the proof refuses too") {
  auto after = [](auto change) {
    Plan plan = *read(ringOf(2, "1")).plan;
    change(plan);
    return errorsOf(plan);
  };
  CHECK(after([](Plan &p) {
          p.channels[1] = p.channels[0];
        }).find("malformed: channel 1 is the same path as channel 0\n") == 0);
  CHECK(after([](Plan &p) { p.channels[0].destination = 0; }) ==
        "malformed: channel 0 leads from rank 0 to itself\n");
  CHECK(after([](Plan &p) { p.ranks[1].buffers[1].offset = 100; }) ==
        "malformed: rank 1, buffer 1 is at offset 100, which is not a multiple "
        "of 256\n");
  CHECK(after([](Plan &p) { p.ranks[0].buffers[0].stage = kNone; }) ==
        "malformed: rank 0, buffer 0 belongs to no stage\n");
  CHECK(after([](Plan &p) { p.ranks[0].ops[5].stream = 1; }) ==
        "malformed: 0STEP is no message, but is on stream 1, which carries "
        "messages\n");
  CHECK(after([](Plan &p) { p.stages[0].forward = -1; }) ==
        "malformed: stage 0 has a time of -1 ticks, not between 0 and " +
            std::to_string(kMaxTicks) + "\n");
}

namespace {

/// Two activations over a communicator each, in one group at both ends.
std::string twoPaths(const std::string &receives) {
  return R"(plan {
  microbatches 1
  stage 0 layers 0+1 no_backward
  stage 1 layers 1+1 no_backward
  stage 2 layers 2+1 no_backward
  stage 3 layers 3+1 no_backward
  edge 0 -> 2 bytes 64
  edge 1 -> 3 bytes 64
  channel 0 rank 0 -> 1 communicator 0
  channel 1 rank 0 -> 1 communicator 1
  rank 0 {
    streams compute s
    arena 1024
    buffer 0 activation stage 0 offset 0 bytes 64
    buffer 1 activation stage 1 offset 256 bytes 64
    0: 0F0 write 0
    1: 1F0 write 1
    2: 0SEND_F0 stream 1 channel 0 group 0 wait 0 read 0
    3: 1SEND_F0 stream 1 channel 1 group 0 wait 1 read 1
  }
  rank 1 {
    streams compute s
    arena 1024
    buffer 0 activation stage 2 offset 0 bytes 64
    buffer 1 activation stage 3 offset 256 bytes 64
)" + receives +
         R"(    2: 2F0 wait 0, 1 read 0
    3: 3F0 wait 0, 1 read 1
  }
}
)";
}

} // namespace

TEST_CASE("verify: groups take communicators in one order at both ends") {
  const std::string first = "2RECV_F0 stream 1 channel 0 group 0 write 0\n";
  const std::string second = "3RECV_F0 stream 1 channel 1 group 0 write 1\n";
  Plan same = *read(twoPaths("    0: " + first + "    1: " + second)).plan;
  verify::Result result = verify::verifyPlan(same);
  CHECK((result.ok() && result.warnings.empty()));
  Plan other = *read(twoPaths("    0: " + second + "    1: " + first)).plan;
  result = verify::verifyPlan(other);
  CHECK(result.ok());
  CHECK(allOf(result.warnings) ==
        "deadlock: in one group rank 0 takes communicator 0 (0SEND_F0) before "
        "communicator 1 (1SEND_F0), rank 1 the other way round: NCCL asks for "
        "one order\n");
  CHECK(verify::verifyPlan(other, {.buffers = false}).warnings.empty());
}

namespace {

const std::string kTwoStages = R"(graph {
  time_unit unit
  microbatches 2
  stage 0 layers 0+2 forward 2 backward_input 1 backward_weight 1
  stage 1 layers 2+2 forward 2 backward_input 1 backward_weight 1
  edge 0 -> 1 bytes 100
)";

} // namespace

TEST_CASE("verify: a schedule computes all that its stages ask for") {
  CHECK(errorsOf(kTwoStages + "  0F0\n  0B0\n  1F0\n}\n"
                              "schedule {\n  name x\n  rank 0: 0F0 0B0\n"
                              "  rank 1: 1F0\n}\n") ==
        "missing: 0F1 is missing\n"
        "missing: 0B1 is missing\n"
        "missing: 1B0 is missing\n"
        "missing: 1F1 is missing\n"
        "missing: 1B1 is missing\n");
  CHECK(errorsOf(kTwoStages + "  0F0\n  0B0\n  1F0\n}\n"
                              "schedule {\n  name x\n  rank 0: 0B0 0F0\n"
                              "  rank 1: 1F0\n}\n")
            .find("deadlock: 0B0 on rank 0 needs 0F0 on rank 0, which comes "
                  "after it\n") != std::string::npos);
}

TEST_CASE("verify: a schedule's dependences are those of its stages") {
  const std::string nodes = "  0F0\n  0F1\n  0I0\n  0W0\n  0B1\n"
                            "  1F0\n  1F1\n  1B0\n  1B1\n}\n"
                            "schedule {\n  name x\n";
  CHECK(errorsOf(kTwoStages + nodes +
                 "  rank 0: 0F0 0F1 0I0 0B1 0W0\n"
                 "  rank 1: 1F0 1F1 1B0 1B1\n}\n") == "");
  CHECK(errorsOf(kTwoStages + nodes +
                 "  rank 0: 0F0 0F1 0W0 0I0 0B1\n"
                 "  rank 1: 1F0 1F1 1B0 1B1\n}\n") ==
        "deadlock: 0W0 on rank 0 needs 0I0 on rank 0, which comes after it\n");
  // Rank 1 begins with microbatch 1, which rank 0 forwards last.
  CHECK(errorsOf(kTwoStages + nodes +
                 "  rank 0: 0F0 0I0 0W0 0F1 0B1\n"
                 "  rank 1: 1F1 1F0 1B0 1B1\n}\n")
            .find("deadlock: ") == 0);
  CHECK(errorsOf(kTwoStages + nodes +
                 "  rank 0: (0F0;0I0)OVERLAP_F_B 0W0 0F1 0B1\n"
                 "  rank 1: 1F0 1F1 1B0 1B1\n}\n") ==
        "malformed: 0F0 runs together with 0I0: only a forward and a backward "
        "of another microbatch do\n");
  CHECK(errorsOf(kTwoStages + nodes +
                 "  rank 0: 0F0 (0F1;0I0)OVERLAP_F_B 0W0 0B1\n"
                 "  rank 1: 1F0 1B0 1F1 1B1\n}\n") == "");
  // 0I0 needs 1B0, and that, by way of its rank's order, the 0F1 beside 0I0.
  CHECK(errorsOf(kTwoStages + nodes +
                 "  rank 0: 0F0 (0F1;0I0)OVERLAP_F_B 0W0 0B1\n"
                 "  rank 1: 1F0 1F1 1B0 1B1\n}\n")
            .find("deadlock: ") == 0);
  // 1B0 needs what 0F0 makes: they cannot run together.
  CHECK(errorsOf(kTwoStages + nodes +
                 "  rank 0: (0F0;1B0)OVERLAP_F_B 1F0 0I0 0W0 0F1 1F1 1B1 0B1\n"
                 "}\n") ==
        "malformed: 0F0 runs together with 1B0: only a forward and a backward "
        "of another microbatch do\n");
}

TEST_CASE("verify: a pair is a forward and a backward") {
  const std::string nodes = "  0F0\n  0F1\n  0B0\n  0B1\n"
                            "  1F0\n  1F1\n  1B0\n  1B1\n}\n"
                            "schedule {\n  name x\n";
  CHECK(errorsOf(kTwoStages + nodes +
                 "  rank 0: (0F0;0F1)OVERLAP_F_B 0B0 0B1\n"
                 "  rank 1: 1F0 1F1 1B0 1B1\n}\n") ==
        "malformed: 0F0 runs together with 0F1: only a forward and a backward "
        "of another microbatch do\n");
  CHECK(errorsOf(kTwoStages + nodes +
                 "  rank 0: 0F0 0F1 (0B0;0B1)OVERLAP_F_B\n"
                 "  rank 1: 1F0 1F1 1B0 1B1\n}\n") ==
        "malformed: 0B0 runs together with 0B1: only a forward and a backward "
        "of another microbatch do\n");
}

TEST_CASE("verify: changed copies and pairs are refused or harmless") {
  const std::string mixed = "    buffer 0 workspace offset 0 bytes 32\n"
                            "    buffer 1 workspace stage 1 offset 256 bytes "
                            "32";
  std::vector<Plan> plans = {*read(ringOf(2, "1")).plan,
                             *read(pairOn(mixed, "0", "1")).plan};
  unsigned count = countFromEnvironment("SLUICE_MUTANTS", 2000);
  MutantCounts counts = checkMutants(plans, count, 20250612);
  CHECK(counts.refused > counts.accepted);
  CHECK(counts.accepted > count / 50);
}
