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

/// Whether all that `entry` waits for is known; raises `start` to when it is
/// there. Else notes what `rank` is to be woken by.
bool OrderTrial::isReady(Id rank, const OrderEntry &entry, Ticks &start) {
  waitsFor[rank] = kNone;
  if (entry.op == Op::BackwardWeight)
    return entry.microbatch < backwards[entry.stage];
  bool forward = entry.op == Op::Forward;
  if (!forward && entry.microbatch >= forwards[entry.stage])
    return false;
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
  if (entry.op == Op::BackwardWeight)
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

/// What `rank` keeps for the whole run, and the gradients of a tied stage that
/// it is sent.
Bytes OrderTrial::stateBytes(Id rank) const {
  Bytes sum = 0, workspace = 0;
  for (Id stage = 0; stage < cut.stages.size(); ++stage) {
    if (rankOfStage[stage] != rank)
      continue;
    const Stage &of = cut.stages[stage];
    for (Bytes bytes :
         {of.bytes.parameters, of.bytes.gradients, of.bytes.optimizer})
      sum += alignedSize(bytes);
    if (of.tiedTo != kNone && rankOfStage[of.tiedTo] != rank)
      sum += alignedSize(of.bytes.tied);
    workspace = std::max(workspace, of.bytes.workspace);
  }
  return sum + alignedSize(workspace);
}

namespace {
/// Buffers of one size, which share bytes.
struct SizeCount {
  Bytes size;
  uint64_t live, peak;
};

/// What is in flight on a rank, by size of buffer.
class InFlight {
public:
  void open(Bytes bytes) {
    SizeCount &of = find(alignedSize(bytes));
    of.peak = std::max(of.peak, ++of.live);
  }
  void close(Bytes bytes) { --find(alignedSize(bytes)).live; }
  Bytes peak() const {
    Bytes sum = 0;
    for (const SizeCount &of : sizes)
      sum += of.size * of.peak;
    return sum;
  }

private:
  SizeCount &find(Bytes size) {
    for (SizeCount &of : sizes)
      if (of.size == size)
        return of;
    return sizes.emplace_back(SizeCount{size, 0, 0});
  }
  std::vector<SizeCount> sizes; ///< few
};
} // namespace

std::vector<Bytes> OrderTrial::leastBytes(const Orders &order) const {
  std::vector<Bytes> least;
  for (Id rank = 0; rank < ranks; ++rank) {
    InFlight flight;
    for (const OrderEntry &entry : order.rank(rank)) {
      const Stage &stage = cut.stages[entry.stage];
      Bytes kept = stage.bytes.keptForWeight;
      Bytes saved = stage.bytes.activation - kept;
      if (!stage.backward)
        continue;
      if (entry.op == Op::Forward) {
        flight.open(saved);
        flight.open(kept);
        continue;
      }
      if (entry.op != Op::BackwardWeight)
        flight.close(saved);
      if (entry.op != Op::BackwardInput)
        flight.close(kept);
    }
    least.push_back(stateBytes(rank) + flight.peak());
  }
  return least;
}

/// When `rank` begins what comes behind the entry at `position`.
Ticks OrderTrial::startAfter(Id rank, uint32_t position) const {
  return position + 1 < orders->firstOfRank[rank + 1]
             ? startOf(rank, position + 1)
             : kMaxTicks;
}

/// Most buffers of `way` at once, where it is `received` or where it is sent:
/// one is there from the message, or from what makes it, until the rank begins
/// something after the last use.
uint64_t OrderTrial::peakOf(const Way &way, bool received) const {
  const StageEdge &edge = cut.edges[way.edge];
  Id source = way.gradient ? edge.to : edge.from;
  Id target = way.gradient ? edge.from : edge.to;
  const std::vector<uint32_t> &at = way.gradient ? backwardAt : forwardAt;
  auto number = static_cast<Id>(&way - ways.data());
  uint32_t next = orders->firstOfRank[way.from];
  std::vector<Ticks> freed;
  freed.reserve(microbatches);
  uint64_t peak = 0;
  size_t gone = 0;
  for (Id each = 0; each < microbatches; ++each) {
    Ticks start = sent[cell(number, each)].start;
    uint32_t used = at[cell(target, each)];
    if (received || way.link == kNone) {
      freed.push_back(startAfter(way.to, used));
    } else {
      while (next < orders->firstOfRank[way.from + 1] &&
             startOf(way.from, next) <= start)
        ++next;
      freed.push_back(startAfter(way.from, next - 1));
    }
    Ticks begins = received ? start : startOf(way.from, at[cell(source, each)]);
    while (gone < each &&
           (freed[gone] < begins || (!received && freed[gone] == begins)))
      ++gone;
    peak = std::max<uint64_t>(peak, each - gone + 1);
  }
  return peak;
}

std::vector<Bytes> OrderTrial::mostBytes() const {
  std::vector<Bytes> most = leastBytes(*orders);
  for (const Way &way : ways) {
    Bytes each = alignedSize(cut.edges[way.edge].bytes);
    if (each == 0)
      continue;
    most[way.from] += each * peakOf(way, /*received=*/false);
    if (way.link != kNone)
      most[way.to] += each * peakOf(way, /*received=*/true);
  }
  return most;
}

} // namespace sluice
