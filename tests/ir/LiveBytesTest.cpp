#include "ir/LiveBytes.h"
#include "tests/Catch.h"

namespace sluice {
namespace {

/// A rank's list of one operation for each list of operands.
RankPlan listOf(std::vector<Buffer> buffers,
                const std::vector<std::vector<Operand>> &uses) {
  RankPlan rank;
  rank.buffers = std::move(buffers);
  for (const std::vector<Operand> &each : uses) {
    PlanOp op{0, 0, kNone, kNone, 0, 0, Op::Forward, kComputeStream};
    op.firstOperand = static_cast<uint32_t>(rank.operands.size());
    rank.ops.push_back(op);
    rank.operands.insert(rank.operands.end(), each.begin(), each.end());
  }
  return rank;
}

} // namespace

TEST_CASE("live bytes: a buffer holds one value after the other") {
  RankPlan rank = listOf({{0, 1000, 0, BufferKind::Parameters},
                          {1024, 10, 0, BufferKind::Saved},
                          {2048, 300, 0, BufferKind::Activation}},
                         {{operand(0, Access::Read), operand(1, Access::Write)},
                          {operand(2, Access::Write)},
                          {operand(1, Access::Update)},
                          {operand(2, Access::Read)},
                          {operand(1, Access::Write)},
                          {},
                          {operand(1, Access::Read)}});
  CHECK(liveBytes(rank) ==
        std::vector<Bytes>{1010, 1310, 1310, 1300, 1010, 1010, 1010});
  std::vector<Life> lives = livesOf(rank);
  REQUIRE(lives.size() == 3);
  CHECK((lives[0].buffer == 1 && lives[0].first == 0 && lives[0].last == 2));
  CHECK((lives[1].buffer == 2 && lives[1].first == 1 && lives[1].last == 3));
  CHECK((lives[2].buffer == 1 && lives[2].first == 4 && lives[2].last == 6));
}

// Written at 0 and moved at 1; back at 4, in a buffer of its own, until 5.
TEST_CASE("live bytes: what is on the host counts there") {
  RankPlan rank = listOf({{0, 512, 0, BufferKind::Saved},
                          {0, 500, 0, BufferKind::Offloaded},
                          {512, 512, 0, BufferKind::Saved},
                          {1024, 8, 0, BufferKind::Gradients}},
                         {{operand(0, Access::Write)},
                          {operand(0, Access::Read), operand(1, Access::Write)},
                          {},
                          {},
                          {operand(1, Access::Read), operand(2, Access::Write)},
                          {operand(2, Access::Update)}});
  using Sizes = std::vector<Bytes>;
  CHECK(liveBytes(rank) == Sizes{520, 520, 8, 8, 520, 520});
  CHECK(liveHostBytes(rank) == Sizes{0, 500, 500, 500, 500, 0});
  CHECK(liveBytesUnmoved(rank) == Sizes{520, 520, 508, 508, 520, 520});
}

TEST_CASE("live bytes: two values of one buffer do not count between them") {
  RankPlan rank = listOf(
      {{0, 512, 0, BufferKind::Saved}},
      {{operand(0, Access::Write)}, {}, {operand(0, Access::Write)}, {}});
  CHECK(liveBytes(rank) == std::vector<Bytes>{512, 0, 512, 0});
}

} // namespace sluice
