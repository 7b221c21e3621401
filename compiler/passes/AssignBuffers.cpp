//===- AssignBuffers.cpp - Buffers share the arena -----------------------===//
//
// Needs a plan. Promises the same operations in the same order on an arena in
// which a buffer takes over the bytes of one of the same size that has ended;
// the event that orders the two is added where streams and events do not imply
// it already. A message takes over no bytes that it might have to wait for.
// Every wait goes forward in the list, so the plan stays free of deadlock.
//
//===----------------------------------------------------------------------===//
#include "compiler/passes/BufferLayout.h"
#include "compiler/passes/PassManager.h"

#include "llvm/ADT/DenseMap.h"

#include <algorithm>
#include <memory>

namespace sluice {

void placeApart(RankPlan &rank) {
  rank.arenaBytes = 0;
  for (Buffer &buffer : rank.buffers) {
    buffer.offset = rank.arenaBytes;
    rank.arenaBytes += alignedSize(buffer.bytes);
  }
}

namespace {
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
  bool ends(Id buffer, uint32_t op) const {
    return ops[first[buffer + 1] - 1] == op;
  }

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

/// Places of one size, taken over in the order in which they became free, so
/// that a new buffer waits for the one that ended longest ago.
struct SizeClass {
  Bytes size;
  std::vector<Id> free; ///< buffers that ended, the oldest first from `head`
  size_t head = 0;
};

class Sharing {
public:
  explicit Sharing(RankPlan &plan)
      : rank(plan), accesses(plan), clocks(plan), placed(plan.buffers.size()),
        ended(plan.buffers.size()) {
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
  uint32_t unitEnd(uint32_t op) const;
  void begin(uint32_t op, bool joins);
  void release(uint32_t op);
  void wait(uint32_t op, uint32_t earlier);
  bool mayWait(uint32_t op, Id before) const;
  void place(uint32_t op, Id buffer);
  SizeClass &classOf(Bytes size);

  RankPlan &rank;
  Accesses accesses;
  Clocks clocks;
  /// Marks `buffer` in `marks`; false if it was marked before (an operation
  /// may name a buffer more than once).
  static bool mark(std::vector<bool> &marks, Id buffer) {
    bool first = !marks[buffer];
    marks[buffer] = true;
    return first;
  }

  std::vector<uint32_t> oldWaits;
  std::vector<bool> placed, ended;
  uint32_t lastComputed = 0; ///< first of the last unit that computes
  std::vector<SizeClass> classes;
  llvm::DenseMap<Bytes, size_t> classNumber; ///< by size
  size_t latest = 0;                         ///< class asked for last
};
} // namespace

void Sharing::wait(uint32_t op, uint32_t earlier) {
  uint8_t stream = rank.ops[earlier].stream;
  if (clocks.follows(op, earlier, stream))
    return;
  rank.waits.push_back(earlier);
  clocks.join(op, earlier, stream);
}

SizeClass &Sharing::classOf(Bytes size) {
  if (classes.empty() || classes[latest].size != size) {
    auto [found, added] = classNumber.try_emplace(size, classes.size());
    if (added)
      classes.push_back({size, {}, 0});
    latest = found->second;
  }
  return classes[latest];
}

/// Whether a message would be late for the bytes of `before`: what computes
/// last in the list may still run when the message could start, and all before
/// that has ended by then.
bool Sharing::mayWait(uint32_t op, Id before) const {
  return isMessage(rank.ops[op].op) &&
         accesses.of(before).back() >= lastComputed;
}

/// Gives `buffer`, which `op` touches first, the bytes of one that has ended
/// or new ones.
void Sharing::place(uint32_t op, Id buffer) {
  Buffer &mine = rank.buffers[buffer];
  Bytes size = alignedSize(mine.bytes);
  SizeClass &places = classOf(size);
  if (places.head == places.free.size() ||
      mayWait(op, places.free[places.head])) {
    mine.offset = rank.arenaBytes;
    rank.arenaBytes += size;
    return;
  }
  Id before = places.free[places.head++];
  mine.offset = rank.buffers[before].offset;
  // The last access implies most others, so it is awaited first.
  for (uint32_t earlier : llvm::reverse(accesses.of(before)))
    wait(op, earlier);
}

void Sharing::run() {
  rank.arenaBytes = 0;
  for (Buffer &buffer : rank.buffers)
    if (info(buffer.kind).persistent) {
      buffer.offset = rank.arenaBytes;
      rank.arenaBytes += alignedSize(buffer.bytes);
    } else {
      buffer.offset = 0;
    }
  for (uint32_t op = 0, end = 0; op < rank.ops.size(); op = end) {
    end = unitEnd(op);
    if (!isMessage(rank.ops[op].op))
      lastComputed = op;
    for (uint32_t member = op; member < end; ++member)
      begin(member, /*joins=*/member > op);
    for (uint32_t member = op; member < end; ++member)
      release(member);
  }
}

/// One past the last operation that starts and ends together with `op`.
uint32_t Sharing::unitEnd(uint32_t op) const {
  uint32_t end = op + 1;
  Id group = rank.ops[op].group;
  while (group != kNone && end < rank.ops.size() &&
         rank.ops[end].group == group)
    ++end;
  return end;
}

/// Rewrites the waits of `op` and places the buffers that it touches first.
void Sharing::begin(uint32_t op, bool joins) {
  llvm::ArrayRef<uint32_t> needed = oldWaitsOf(op);
  rank.ops[op].firstWait = static_cast<uint32_t>(rank.waits.size());
  clocks.begin(op, rank.ops[op].stream, joins);
  for (uint32_t earlier : llvm::reverse(needed))
    wait(op, earlier);
  for (Operand use : rank.operandsOf(op))
    if (accesses.shared(use.buffer) && accesses.begins(use.buffer, op) &&
        mark(placed, use.buffer))
      place(op, use.buffer);
}

/// Frees the buffers that `op` touches last.
void Sharing::release(uint32_t op) {
  for (Operand use : rank.operandsOf(op))
    if (accesses.shared(use.buffer) && accesses.ends(use.buffer, op) &&
        mark(ended, use.buffer))
      classOf(alignedSize(rank.buffers[use.buffer].bytes))
          .free.push_back(use.buffer);
}

void placeShared(RankPlan &rank) { Sharing(rank).run(); }

bool passes::AssignBuffers(Compilation &c) {
  for (RankPlan &rank : c.plan->ranks)
    placeShared(rank);
  return true;
}

} // namespace sluice
