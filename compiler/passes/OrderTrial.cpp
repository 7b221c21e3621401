#include "compiler/passes/OrderTrial.h"

#include "compiler/passes/BufferLayout.h"

#include <algorithm>
#include <map>

namespace sluice {

OrderTrial::OrderTrial(const StageGraph &stages, const Placement &placement,
                       uint32_t count, TimeUnit unit, const Network &network)
    : cut(stages), ranks(placement.ranks()), microbatches(count),
      forwardIn(stages.stages.size()), forwardOut(forwardIn),
      backwardIn(forwardIn), backwardOut(forwardIn) {
  for (Id stage = 0; stage < cut.stages.size(); ++stage)
    rankOfStage.push_back(placement.rankOf(stage, 0));
  for (Id edge = 0; edge < cut.edges.size(); ++edge)
    for (bool gradient : {false, true})
      addWay(edge, gradient, network, unit);
  std::map<std::pair<Id, Id>, Id> numbers;
  waysOf.resize(ranks);
  for (Id way = 0; way < ways.size(); ++way)
    if (ways[way].from != ways[way].to)
      for (Id rank : {ways[way].from, ways[way].to})
        waysOf[rank].push_back(way);
  for (Way &way : ways)
    if (way.from != way.to)
      way.link = numbers.try_emplace({way.from, way.to}, links).second
                     ? links++
                     : numbers[{way.from, way.to}];
}

void OrderTrial::addWay(Id number, bool gradient, const Network &network,
                        TimeUnit unit) {
  const StageEdge &edge = cut.edges[number];
  if (gradient &&
      !(cut.stages[edge.from].backward && cut.stages[edge.to].backward))
    return;
  Id source = gradient ? edge.to : edge.from;
  Id target = gradient ? edge.from : edge.to;
  Id from = rankOfStage[source], to = rankOfStage[target];
  Link link = network.between(from, to);
  auto way = static_cast<Id>(ways.size());
  ways.push_back({number, from, to, kNone, link.occupancy(edge.bytes, unit),
                  link.latency, gradient});
  (gradient ? backwardOut : forwardOut)[source].push_back(way);
  (gradient ? backwardIn : forwardIn)[target].push_back(way);
}

/// Whether `op` waits for what other stages hand on, and hands on itself.
static bool handsOn(Op op) {
  return op != Op::BackwardWeight && op != Op::Recompute;
}

/// Whether all that `entry` waits for is known; raises `start` to when it is
/// there. Else notes what `rank` is to be woken by.
bool OrderTrial::isReady(Id rank, const OrderEntry &entry, Ticks &start) {
  waitsFor[rank] = kNone;
  if (entry.op == Op::BackwardWeight)
    return entry.microbatch < backwards[entry.stage];
  bool forward = entry.op == Op::Forward;
  if (!forward && entry.microbatch >= forwards[entry.stage])
    return false;
  if (!handsOn(entry.op))
    return true;
  const std::vector<Id> &in = (forward ? forwardIn : backwardIn)[entry.stage];
  for (Id way : in)
    if (entry.microbatch >= sentCount[way]) {
      waitsFor[rank] = way;
      return false;
    }
  for (Id way : in)
    start = std::max(start, sent[cell(way, entry.microbatch)].arrival);
  return true;
}

/// Hands on what the entry at `position`, which lasts until `end`, computes.
void OrderTrial::finish(uint32_t position, Ticks end) {
  const OrderEntry &entry = orders->entries[position];
  if (!handsOn(entry.op))
    return;
  bool forward = entry.op == Op::Forward;
  (forward ? forwardAt : backwardAt)[cell(entry.stage, entry.microbatch)] =
      position;
  ++(forward ? forwards : backwards)[entry.stage];
  for (Id number : (forward ? forwardOut : backwardOut)[entry.stage]) {
    const Way &way = ways[number];
    ++sentCount[number];
    Sent &message = sent[cell(number, entry.microbatch)];
    message = {end, end};
    if (way.link == kNone)
      continue;
    Ticks &free = freeLink[way.link];
    message.start = std::max(end, free);
    free = later(message.start, way.occupancy);
    message.arrival = later(free, way.latency);
    if (waitsFor[way.to] == number) {
      waitsFor[way.to] = kNone;
      queue.push_back(way.to);
    }
  }
}

/// Runs `rank` until it waits for another.
void OrderTrial::advance(Id rank) {
  for (uint32_t &at = place[rank]; at < orders->firstOfRank[rank + 1]; ++at) {
    const OrderEntry &entry = orders->entries[at];
    Ticks &start = startOf(rank, at);
    start = readyRank[rank];
    if (!isReady(rank, entry, start))
      return;
    readyRank[rank] = later(start, cut.stages[entry.stage].duration(entry.op));
    finish(at, readyRank[rank]);
  }
}

bool OrderTrial::run(const Orders &order) {
  orders = &order;
  size_t cells = cell(static_cast<Id>(cut.stages.size()), 0);
  starts.resize(order.entries.size() + size_t(ranks) * kPadding);
  forwardAt.resize(cells);
  backwardAt.resize(cells);
  forwards.assign(cut.stages.size(), 0);
  backwards.assign(cut.stages.size(), 0);
  sent.resize(cell(static_cast<Id>(ways.size()), 0));
  sentCount.assign(ways.size(), 0);
  freeLink.assign(links, 0);
  readyRank.assign(ranks, 0);
  place.assign(order.firstOfRank.begin(), order.firstOfRank.end() - 1);
  waitsFor.assign(ranks, kNone);
  queue.clear();
  for (Id rank = 0; rank < ranks; ++rank)
    queue.push_back(rank);
  for (size_t at = 0; at < queue.size(); ++at)
    advance(queue[at]);
  latestEnd = longestSpan = 0;
  for (Id rank = 0; rank < ranks; ++rank) {
    Id first = order.firstOfRank[rank], end = order.firstOfRank[rank + 1];
    if (place[rank] != end)
      return false;
    if (first == end)
      continue;
    latestEnd = std::max(latestEnd, readyRank[rank]);
    longestSpan = std::max(longestSpan, readyRank[rank] - startOf(rank, first));
  }
  return true;
}

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

/// What `rank` keeps for the whole run.
Bytes OrderTrial::stateBytes(Id rank) const {
  Bytes sum = 0, workspace = 0;
  for (Id stage = 0; stage < cut.stages.size(); ++stage) {
    if (rankOfStage[stage] != rank)
      continue;
    const Stage &of = cut.stages[stage];
    for (Bytes bytes :
         {of.bytes.parameters, of.bytes.gradients, of.bytes.optimizer})
      sum += alignedSize(bytes);
    workspace = std::max(workspace, of.bytes.workspace);
  }
  return sum + alignedSize(workspace);
}

/// Visits the bytes of the gradients of tied stages that `rank` is sent.
void OrderTrial::forTied(Id rank, llvm::function_ref<void(Bytes)> visit) const {
  for (Id stage = 0; stage < cut.stages.size(); ++stage) {
    const Stage &of = cut.stages[stage];
    if (rankOfStage[stage] == rank && of.tiedTo != kNone &&
        rankOfStage[of.tiedTo] != rank)
      visit(of.bytes.tied);
  }
}

namespace {
/// Buffers of one size, which share bytes.
struct SizeCount {
  Bytes size;
  uint64_t live = 0;
  uint64_t places = 0; ///< most at once
  /// Places that are free, but that a message might have to wait for: what used
  /// them ends after all that has been computed.
  uint64_t late = 0;
};

/// Buffers of a rank by size.
class BufferCount {
public:
  /// A computation begins: messages need not wait for what was before it.
  void compute() {
    for (SizeCount &of : sizes)
      of.late = 0;
  }
  void open(Bytes bytes, bool isMessage = false) {
    if (bytes == 0)
      return;
    SizeCount &of = find(alignedSize(bytes));
    of.places =
        std::max(of.places, ++of.live + (isMessage ? of.late : uint64_t(0)));
  }
  void close(Bytes bytes) {
    if (bytes == 0)
      return;
    SizeCount &of = find(alignedSize(bytes));
    --of.live;
    ++of.late;
  }
  Bytes bytes() const {
    Bytes sum = 0;
    for (const SizeCount &of : sizes)
      sum += of.size * of.places;
    return sum;
  }

private:
  SizeCount &find(Bytes size) {
    for (SizeCount &of : sizes)
      if (of.size == size)
        return of;
    return sizes.emplace_back(SizeCount{size});
  }
  std::vector<SizeCount> sizes; ///< few
};
} // namespace

/// Counts what `op` of `stage` leaves for its backward, or lets go.
static void countSaved(const Stage &stage, Op op, BufferCount &buffers) {
  Bytes kept = stage.bytes.keptForWeight;
  Bytes saved = stage.bytes.activation - kept;
  if (!stage.backward)
    return;
  if (op == Op::Forward && stage.hasCheckpoint())
    buffers.open(stage.bytes.checkpoint);
  if (op == stage.savedBy())
    buffers.open(saved);
  if (op == stage.keptBy())
    buffers.open(kept);
  if (op == Op::Recompute && stage.hasCheckpoint())
    buffers.close(stage.bytes.checkpoint);
  if (op == Op::Backward || op == Op::BackwardInput)
    buffers.close(saved);
  if (op == Op::Backward || op == Op::BackwardWeight)
    buffers.close(kept);
}

std::vector<Bytes> OrderTrial::leastBytes(const Orders &order) const {
  std::vector<Bytes> least;
  for (Id rank = 0; rank < ranks; ++rank) {
    BufferCount buffers;
    for (const OrderEntry &entry : order.rank(rank))
      countSaved(cut.stages[entry.stage], entry.op, buffers);
    forTied(rank, [&](Bytes bytes) { buffers.open(bytes); });
    least.push_back(stateBytes(rank) + buffers.bytes());
  }
  return least;
}

/// A rank's list has its messages in order of start, each before what computes
/// from then on (LowerToPlan.cpp); a buffer is taken by the first operation
/// that touches it and free behind the last (AssignBuffers.cpp).
class OrderTrial::RankWalk {
public:
  RankWalk(const OrderTrial &of, Id number)
      : trial(of), rank(number), next(of.waysOf[number].size(), 0) {}

  Bytes bytes() {
    const Orders &orders = *trial.orders;
    for (uint32_t at = orders.firstOfRank[rank];
         at < orders.firstOfRank[rank + 1]; ++at) {
      messagesUntil(trial.startOf(rank, at));
      buffers.compute();
      compute(orders.entries[at]);
    }
    messagesUntil(kMaxTicks);
    trial.forTied(
        rank, [&](Bytes bytes) { buffers.open(bytes, /*isMessage=*/true); });
    return trial.stateBytes(rank) + buffers.bytes();
  }

private:
  Bytes bytesOf(const Way &way) const {
    return trial.cut.edges[way.edge].bytes;
  }
  void messagesUntil(Ticks time);
  bool isBefore(Id number, Ticks time, Ticks &start) const;
  void compute(const OrderEntry &entry);

  const OrderTrial &trial;
  Id rank;
  std::vector<uint32_t> next; ///< microbatch of each way
  BufferCount buffers;
};

/// Whether the next message of a way comes before what computes at `time`;
/// where its producer starts as late as that, only what is received does.
bool OrderTrial::RankWalk::isBefore(Id at, Ticks time, Ticks &start) const {
  Id number = trial.waysOf[rank][at];
  const Way &way = trial.ways[number];
  if (next[at] == trial.sentCount[number])
    return false;
  start = trial.sent[trial.cell(number, next[at])].start;
  if (start < time || way.to == rank)
    return start <= time;
  Id source = way.gradient ? trial.cut.edges[way.edge].to
                           : trial.cut.edges[way.edge].from;
  const std::vector<uint32_t> &madeAt =
      way.gradient ? trial.backwardAt : trial.forwardAt;
  return start == time &&
         trial.startOf(rank, madeAt[trial.cell(source, next[at])]) < time;
}

/// Counts the messages that come before what computes at `time`. Received ones
/// first: what is sent frees nothing that they could take.
void OrderTrial::RankWalk::messagesUntil(Ticks time) {
  const std::vector<Id> &mine = trial.waysOf[rank];
  Ticks start = 0;
  for (bool received : {true, false})
    for (Id at = 0; at < mine.size(); ++at) {
      const Way &way = trial.ways[mine[at]];
      if ((way.to == rank) != received)
        continue;
      for (; isBefore(at, time, start); ++next[at])
        received ? buffers.open(bytesOf(way), /*isMessage=*/true)
                 : buffers.close(bytesOf(way));
    }
}

/// What an operation makes begins before what it uses ends.
void OrderTrial::RankWalk::compute(const OrderEntry &entry) {
  const Stage &stage = trial.cut.stages[entry.stage];
  bool forward = entry.op == Op::Forward;
  if (handsOn(entry.op))
    for (Id way : (forward ? trial.forwardOut : trial.backwardOut)[entry.stage])
      buffers.open(bytesOf(trial.ways[way]));
  countSaved(stage, entry.op, buffers);
  if (handsOn(entry.op))
    for (Id way : (forward ? trial.forwardIn : trial.backwardIn)[entry.stage])
      buffers.close(bytesOf(trial.ways[way]));
}

std::vector<Bytes> OrderTrial::arenas() const {
  std::vector<Bytes> bytes;
  for (Id rank = 0; rank < ranks; ++rank)
    bytes.push_back(RankWalk(*this, rank).bytes());
  return bytes;
}

} // namespace sluice
