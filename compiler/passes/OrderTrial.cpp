#include "compiler/passes/OrderTrial.h"

#include "compiler/passes/BufferLayout.h"
#include "compiler/passes/Packing.h"

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
  Bytes sum = 0, workspace = 0, norms = 0;
  for (Id stage = 0; stage < cut.stages.size(); ++stage) {
    if (rankOfStage[stage] != rank)
      continue;
    const Stage &of = cut.stages[stage];
    for (Bytes bytes :
         {of.bytes.parameters, of.gradientsKept(), of.bytes.optimizer})
      sum += alignedSize(bytes);
    workspace = std::max(workspace, of.bytes.workspace);
    norms = std::max(norms, of.bytes.norms);
  }
  return sum + alignedSize(workspace) + alignedSize(norms);
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

/// Kinds of what a stage keeps of a microbatch; the last are its gradients,
/// which live on until replicas have summed them.
static constexpr unsigned kSlots = 4, kWholeSlot = 3;

/// Visits what `op` leaves for later operations on its stage and microbatch,
/// and what it is the last to use.
static void forStored(
    const Stage &stage, Op op,
    llvm::function_ref<void(unsigned slot, Bytes bytes, bool opens)> visit) {
  if (!stage.backward)
    return;
  auto each = [&](unsigned slot, Bytes bytes, Op from, Op last, Op lastSplit) {
    if (op == from)
      visit(slot, bytes, true);
    else if (op == last || op == lastSplit)
      visit(slot, bytes, false);
  };
  Bytes kept = stage.bytes.keptForWeight;
  each(0, stage.bytes.activation - kept, stage.savedBy(), Op::Backward,
       Op::BackwardInput);
  each(1, kept, stage.keptBy(), Op::Backward, Op::BackwardWeight);
  if (stage.hasCheckpoint())
    each(2, stage.bytes.checkpoint, Op::Forward, Op::Recompute, Op::Recompute);
  if (!stage.gradientsPartitioned)
    return;
  if (op == Op::Backward || op == Op::BackwardInput)
    visit(kWholeSlot, stage.bytes.gradients, true);
  if (op == Op::Backward || op == Op::BackwardWeight)
    visit(kWholeSlot, stage.bytes.gradients, false);
}

std::vector<Bytes> OrderTrial::leastBytes(const Orders &order) const {
  std::vector<Bytes> least;
  for (Id rank = 0; rank < ranks; ++rank) {
    Bytes live = 0, most = 0;
    for (const OrderEntry &entry : order.rank(rank)) {
      Bytes ended = 0;
      forStored(cut.stages[entry.stage], entry.op,
                [&](unsigned, Bytes bytes, bool opens) {
                  (opens ? live : ended) += alignedSize(bytes);
                });
      most = std::max(most, live);
      live -= ended;
    }
    forTied(rank, [&](Bytes bytes) {
      most = std::max(most, live + alignedSize(bytes));
    });
    least.push_back(stateBytes(rank) + most);
  }
  return least;
}

/// A rank's list has its messages in order of start, each before what computes
/// from then on (LowerToPlan.cpp); a buffer is in use from the step of the
/// first operation that touches it to that of the last (BufferLayout.h).
class OrderTrial::RankWalk {
public:
  /// `table` has an entry for each cell of a way and kSlots for each of a
  /// stage.
  RankWalk(const OrderTrial &of, Id number, std::vector<uint32_t> &table)
      : trial(of), rank(number), next(of.waysOf[number].size(), 0),
        numbers(table) {}

  std::vector<Lifetime> lifetimes() {
    const Orders &order = *trial.orders;
    for (uint32_t at = order.firstOfRank[rank];
         at < order.firstOfRank[rank + 1]; ++at) {
      const Ticks start = trial.startOf(rank, at);
      sumsBefore(start, order.entries[at]);
      messagesUntil(start);
      ++moment;
      compute(order.entries[at]);
      noteSum(order.entries[at], start);
      ++moment;
    }
    sumsBefore(kMaxTicks, {});
    messagesUntil(kMaxTicks);
    ++moment;
    trial.forTied(rank, [&](Bytes bytes) {
      if (bytes != 0)
        found.push_back({moment, moment, alignedSize(bytes)});
    });
    return std::move(found);
  }

private:
  /// Where the number of a buffer's lifetime is kept: of what a way carries,
  /// and of what a stage saves.
  size_t carried(Id way, Id microbatch) const {
    return trial.cell(way, microbatch);
  }
  size_t stored(Id stage, Id microbatch, unsigned slot) const {
    auto rows = static_cast<Id>(trial.ways.size());
    return trial.cell(rows + kSlots * stage + slot, microbatch);
  }
  void open(size_t entry, Bytes bytes) {
    if (bytes == 0)
      return;
    numbers[entry] = static_cast<uint32_t>(found.size());
    found.push_back({moment, moment, alignedSize(bytes)});
  }
  void close(size_t entry, Bytes bytes) {
    if (bytes != 0)
      found[numbers[entry]].end = moment;
  }
  Bytes bytesOf(Id way) const {
    return trial.cut.edges[trial.ways[way].edge].bytes;
  }
  void messagesUntil(Ticks time);
  void noteSum(const OrderEntry &entry, Ticks start);
  void sumsBefore(Ticks time, const OrderEntry &entry);
  bool isBefore(Id number, Ticks time) const;
  void compute(const OrderEntry &entry);

  const OrderTrial &trial;
  Id rank;
  std::vector<uint32_t> next; ///< microbatch of each way
  std::vector<uint32_t> &numbers;
  std::vector<Lifetime> found;
  /// Gradients of a microbatch that replicas are to sum.
  struct Sum {
    Ticks when;
    Id stage, microbatch;
  };
  std::vector<Sum> sums; ///< in order of time
  size_t nextSum = 0;
  uint32_t moment = 1; ///< 2 · step + 1 where messages come (Packing.h)
};

/// Whether the next message of a way comes before what computes at `time`;
/// where its producer starts as late as that, only what is received does.
bool OrderTrial::RankWalk::isBefore(Id at, Ticks time) const {
  Id number = trial.waysOf[rank][at];
  const Way &way = trial.ways[number];
  if (next[at] == trial.sentCount[number])
    return false;
  Ticks start = trial.sent[trial.cell(number, next[at])].start;
  if (start < time || way.to == rank)
    return start <= time;
  Id source = way.gradient ? trial.cut.edges[way.edge].to
                           : trial.cut.edges[way.edge].from;
  const std::vector<uint32_t> &madeAt =
      way.gradient ? trial.backwardAt : trial.forwardAt;
  return start == time &&
         trial.startOf(rank, madeAt[trial.cell(source, next[at])]) < time;
}

/// The messages that come before what computes at `time`, all of one step.
void OrderTrial::RankWalk::messagesUntil(Ticks time) {
  const std::vector<Id> &mine = trial.waysOf[rank];
  for (Id at = 0; at < mine.size(); ++at)
    for (; isBefore(at, time); ++next[at]) {
      size_t entry = carried(mine[at], next[at]);
      if (trial.ways[mine[at]].to == rank)
        open(entry, bytesOf(mine[at]));
      else
        close(entry, bytesOf(mine[at]));
    }
}

static bool addsGradients(Op op) {
  return op == Op::Backward || op == Op::BackwardWeight;
}

void OrderTrial::RankWalk::noteSum(const OrderEntry &entry, Ticks start) {
  const Stage &stage = trial.cut.stages[entry.stage];
  if (stage.gradientsPartitioned && addsGradients(entry.op))
    sums.push_back({later(start, stage.duration(entry.op)), entry.stage,
                    entry.microbatch});
}

/// The sums over replicas that come before `entry`, which computes at `time`:
/// those that can be made before, and those that it goes on with; each a step
/// of its own, behind the messages of the moment from which it can be made.
void OrderTrial::RankWalk::sumsBefore(Ticks time, const OrderEntry &entry) {
  size_t last = nextSum;
  for (size_t at = nextSum; at < sums.size(); ++at)
    if (sums[at].when < time ||
        (addsGradients(entry.op) && sums[at].stage == entry.stage))
      last = at + 1;
  for (; nextSum < last; ++nextSum) {
    const Sum &sum = sums[nextSum];
    messagesUntil(sum.when);
    ++moment;
    close(stored(sum.stage, sum.microbatch, kWholeSlot),
          trial.cut.stages[sum.stage].bytes.gradients);
    ++moment;
  }
}

void OrderTrial::RankWalk::compute(const OrderEntry &entry) {
  forStored(trial.cut.stages[entry.stage], entry.op,
            [&](unsigned slot, Bytes bytes, bool opens) {
              size_t key = stored(entry.stage, entry.microbatch, slot);
              if (slot == kWholeSlot && !opens)
                return; // with its sum
              opens ? open(key, bytes) : close(key, bytes);
            });
  if (!handsOn(entry.op))
    return;
  bool forward = entry.op == Op::Forward;
  for (Id way : (forward ? trial.forwardOut : trial.backwardOut)[entry.stage])
    open(carried(way, entry.microbatch), bytesOf(way));
  for (Id way : (forward ? trial.forwardIn : trial.backwardIn)[entry.stage])
    close(carried(way, entry.microbatch), bytesOf(way));
}

std::vector<Bytes> OrderTrial::arenas() const {
  std::vector<uint32_t> table(
      cell(static_cast<Id>(ways.size() + kSlots * cut.stages.size()), 0));
  std::vector<Bytes> bytes;
  for (Id rank = 0; rank < ranks; ++rank)
    bytes.push_back(stateBytes(rank) +
                    packedBytes(RankWalk(*this, rank, table).lifetimes()));
  return bytes;
}

} // namespace sluice
