//===- compiler/passes/AssignBuffers.cpp - Buffers share the arena --------===//
//
// Needs a plan. Promises the same operations in the same order on an arena in
// which a buffer takes over bytes of others that have ended, as Packing.h lays
// them out; the events that order them are added where streams and events do
// not imply it already. A message takes over no bytes that it might have to
// wait for. Every wait goes forward in the list, so the plan stays free of
// deadlock. Values of one stage and kind that take turns at one place end up in
// one buffer.
//
//===----------------------------------------------------------------------===//
#include "compiler/passes/BufferLayout.h"
#include "compiler/passes/Packing.h"
#include "compiler/passes/PassManager.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallVector.h"

#include <algorithm>
#include <functional>
#include <memory>

namespace sluice {

void placeApart(RankPlan &rank) {
  rank.arenaBytes = rank.hostArenaBytes = 0;
  for (Buffer &buffer : rank.buffers) {
    Bytes &arena =
        isOnHost(buffer.kind) ? rank.hostArenaBytes : rank.arenaBytes;
    buffer.offset = arena;
    arena += alignedSize(buffer.bytes);
  }
}

namespace {
/// One past the last operation of `rank` that starts and ends with `op`.
uint32_t unitEnd(const RankPlan &rank, uint32_t op) {
  uint32_t end = op + 1;
  Id group = rank.ops[op].group;
  while (group != kNone && end < rank.ops.size() &&
         rank.ops[end].group == group)
    ++end;
  return end;
}

/// For each buffer that may share bytes, the operations that touch it, in order
/// of the list; flat.
class Accesses {
public:
  explicit Accesses(const RankPlan &rank);
  bool shared(Id buffer) const { return shares[buffer]; }
  llvm::ArrayRef<uint32_t> of(Id buffer) const {
    return llvm::ArrayRef(ops).slice(first[buffer],
                                     first[buffer + 1] - first[buffer]);
  }
  bool begins(Id buffer, uint32_t op) const { return ops[first[buffer]] == op; }

private:
  std::vector<uint8_t> shares;
  std::vector<uint32_t> first, ops;
};

Accesses::Accesses(const RankPlan &rank)
    : shares(rank.buffers.size()), first(rank.buffers.size() + 1, 0) {
  for (size_t i = 0; i < rank.buffers.size(); ++i)
    shares[i] =
        !info(rank.buffers[i].kind).persistent && rank.buffers[i].bytes != 0;
  for (Operand use : rank.operands)
    first[use.buffer + 1] += shares[use.buffer];
  for (size_t i = 1; i < first.size(); ++i)
    first[i] += first[i - 1];
  ops.resize(first.back());
  std::vector<uint32_t> next(first.begin(), first.end() - 1);
  for (uint32_t op = 0; op < rank.ops.size(); ++op)
    for (Operand use : rank.operandsOf(op))
      if (shares[use.buffer])
        ops[next[use.buffer]++] = op;
}

/// What is certain to have ended before an operation starts: for each stream,
/// one past the last such operation of it.
class Clocks {
public:
  explicit Clocks(const RankPlan &rank)
      : streams(rank.streams.size()),
        clocks(new uint32_t[rank.ops.size() * streams]),
        lastOfStream(streams, kNone) {}

  /// Begins `op`: it follows its predecessor on the stream, or `joins` the
  /// operation before it, with which it starts.
  void begin(uint32_t op, uint8_t stream, bool joins) {
    uint32_t *mine = &clocks[op * streams];
    uint32_t before = lastOfStream[stream];
    if (joins) {
      std::copy_n(mine - streams, streams, mine);
    } else if (before == kNone) {
      std::fill_n(mine, streams, 0);
    } else {
      std::copy_n(&clocks[before * streams], streams, mine);
      mine[stream] = before + 1;
    }
    lastOfStream[stream] = op;
  }
  /// Lets `op` also follow the end of `earlier`, an operation of `stream`.
  void join(uint32_t op, uint32_t earlier, uint8_t stream) {
    uint32_t *mine = &clocks[op * streams];
    const uint32_t *other = &clocks[earlier * streams];
    for (size_t i = 0; i < streams; ++i)
      mine[i] = std::max(mine[i], other[i]);
    mine[stream] = std::max(mine[stream], earlier + 1);
  }
  bool follows(uint32_t op, uint32_t earlier, uint8_t stream) const {
    return clocks[op * streams + stream] > earlier;
  }

private:
  size_t streams;
  std::unique_ptr<uint32_t[]> clocks; ///< of an operation once it has begun
  std::vector<uint32_t> lastOfStream;
};

class Sharing {
public:
  explicit Sharing(RankPlan &plan) : rank(plan), accesses(plan), clocks(plan) {
    oldWaits.swap(rank.waits);
    rank.waits.reserve(oldWaits.size());
  }
  void run();

private:
  llvm::ArrayRef<uint32_t> oldWaitsOf(uint32_t op) const {
    uint32_t begin = rank.ops[op].firstWait; // not rewritten yet, nor the next
    uint32_t end =
        op + 1 < rank.ops.size() ? rank.ops[op + 1].firstWait : oldWaits.size();
    return llvm::ArrayRef(oldWaits).slice(begin, end - begin);
  }
  std::vector<uint32_t> moments() const;
  void place();
  Bytes placeValues(bool onHost, Bytes begin);
  void begin(uint32_t op, bool joins);
  void wait(uint32_t op, uint32_t earlier);
  void waitForBytes(uint32_t op, Id buffer);
  void merge();

  RankPlan &rank;
  Accesses accesses;
  Clocks clocks;
  std::vector<uint32_t> oldWaits;
  std::vector<uint32_t> moment;             ///< per operation
  std::vector<std::pair<Id, Id>> takeovers; ///< earlier and later buffer
  /// Per buffer, the buffers whose bytes it takes over; flat.
  std::vector<uint32_t> firstBefore;
  std::vector<Id> before;
  llvm::SmallVector<uint32_t, 16> awaited; ///< of the buffer at hand
};
} // namespace

/// Waits for `earlier` unless that is certain already.
void Sharing::wait(uint32_t op, uint32_t earlier) {
  uint8_t stream = rank.ops[earlier].stream;
  if (clocks.follows(op, earlier, stream))
    return;
  rank.waits.push_back(earlier);
  clocks.join(op, earlier, stream);
}

/// The moment of each operation (Packing.h).
std::vector<uint32_t> Sharing::moments() const {
  std::vector<uint32_t> moments(rank.ops.size());
  uint32_t step = 0;
  for (uint32_t op = 0, end = 0; op < rank.ops.size(); op = end) {
    end = unitEnd(rank, op);
    bool begins = std::any_of(&rank.ops[op], &rank.ops[op] + (end - op),
                              [](const PlanOp &of) { return beginsStep(of); });
    step += begins;
    bool late = !begins && !isCopy(rank.ops[op].op);
    std::fill_n(&moments[op], end - op, 2 * step + late);
  }
  return moments;
}

/// Lays out both arenas: of the device's, first what lives for the whole run,
/// behind it the rest.
void Sharing::place() {
  moment = moments();
  Bytes state = 0;
  for (Buffer &buffer : rank.buffers) {
    buffer.offset = 0;
    if (info(buffer.kind).persistent) {
      buffer.offset = state;
      state += alignedSize(buffer.bytes);
    }
  }
  rank.arenaBytes = placeValues(/*onHost=*/false, state);
  rank.hostArenaBytes = placeValues(/*onHost=*/true, 0);

  firstBefore.assign(rank.buffers.size() + 1, 0);
  for (auto [earlier, later] : takeovers)
    ++firstBefore[later + 1];
  for (size_t i = 1; i < firstBefore.size(); ++i)
    firstBefore[i] += firstBefore[i - 1];
  before.resize(takeovers.size());
  std::vector<uint32_t> next(firstBefore.begin(), firstBefore.end() - 1);
  for (auto [earlier, later] : takeovers)
    before[next[later]++] = earlier;
}

/// Lays out the values of one arena from `begin` on; gives where they end.
Bytes Sharing::placeValues(bool onHost, Bytes begin) {
  std::vector<Lifetime> lifetimes;
  std::vector<Id> buffers; ///< of the lifetimes
  for (Id id = 0; id < rank.buffers.size(); ++id)
    if (accesses.shared(id) && !accesses.of(id).empty() &&
        isOnHost(rank.buffers[id].kind) == onHost) {
      lifetimes.push_back({moment[accesses.of(id).front()],
                           moment[accesses.of(id).back()],
                           alignedSize(rank.buffers[id].bytes)});
      buffers.push_back(id);
    }
  Packing packing = pack(lifetimes);
  for (size_t i = 0; i < buffers.size(); ++i)
    rank.buffers[buffers[i]].offset = begin + packing.offsets[i];
  for (auto [earlier, later] : packing.takeovers)
    takeovers.emplace_back(buffers[earlier], buffers[later]);
  return begin + packing.bytes;
}

/// Waits for all that touches the bytes which `buffer` takes over: for the last
/// operation first, as it implies most others.
void Sharing::waitForBytes(uint32_t op, Id buffer) {
  auto taken = llvm::ArrayRef(before).slice(
      firstBefore[buffer], firstBefore[buffer + 1] - firstBefore[buffer]);
  if (taken.size() == 1) {
    for (uint32_t earlier : llvm::reverse(accesses.of(taken[0])))
      wait(op, earlier);
    return;
  }
  awaited.clear();
  for (Id each : taken)
    awaited.append(accesses.of(each).begin(), accesses.of(each).end());
  llvm::sort(awaited, std::greater<>());
  for (uint32_t earlier : awaited)
    wait(op, earlier);
}

void Sharing::run() {
  place();
  for (uint32_t op = 0, end = 0; op < rank.ops.size(); op = end) {
    end = unitEnd(rank, op);
    for (uint32_t member = op; member < end; ++member)
      begin(member, /*joins=*/member > op);
  }
  merge();
}

/// Makes one buffer of those that differ in nothing; the events are there that
/// let one follow the other.
void Sharing::merge() {
  llvm::DenseMap<std::pair<Bytes, uint64_t>, Id> known; // by place and owner
  std::vector<Id> numberOf(rank.buffers.size());
  Id count = 0;
  for (Id id = 0; id < rank.buffers.size(); ++id) {
    Buffer buffer = rank.buffers[id];
    numberOf[id] = count;
    if (accesses.shared(id)) {
      uint64_t owner = uint64_t(buffer.stage) * kBufferKindCount +
                       static_cast<uint64_t>(buffer.kind);
      Id first = known.try_emplace({buffer.offset, owner}, count).first->second;
      if (first != count && rank.buffers[first].bytes == buffer.bytes) {
        numberOf[id] = first;
        continue;
      }
    }
    rank.buffers[count++] = buffer;
  }
  rank.buffers.resize(count);
  for (Operand &use : rank.operands)
    use.buffer = numberOf[use.buffer];
}

/// Rewrites the waits of `op` and adds those of the buffers that it touches
/// first.
void Sharing::begin(uint32_t op, bool joins) {
  llvm::ArrayRef<uint32_t> needed = oldWaitsOf(op);
  rank.ops[op].firstWait = static_cast<uint32_t>(rank.waits.size());
  clocks.begin(op, rank.ops[op].stream, joins);
  for (uint32_t earlier : llvm::reverse(needed))
    wait(op, earlier);
  for (Operand use : rank.operandsOf(op))
    if (accesses.shared(use.buffer) && accesses.begins(use.buffer, op))
      waitForBytes(op, use.buffer);
}

void placeShared(RankPlan &rank) { Sharing(rank).run(); }

bool passes::AssignBuffers(Compilation &c) {
  for (RankPlan &rank : c.plan->ranks)
    placeShared(rank);
  return true;
}

} // namespace sluice
