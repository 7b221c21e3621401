//===- tests/cuda/double/Graph.cpp ----------------------------------------===//
#include "tests/cuda/double/Graph.h"

namespace sluice::cudadouble {

void Capture::join(Stream &stream) {
  stream.capture = this;
  stream.lane = static_cast<uint32_t>(lanes.size());
  lanes.push_back(&stream);
  items.emplace_back();
  clocks.emplace_back();
}

void Capture::note(Stream &stream, Item item) {
  VectorClock &clock = clocks[stream.lane];
  clock.advance(stream.lane);
  if (item.kind == Item::Kind::Wait)
    clock.join(item.record->captured);
  if (item.kind == Item::Kind::Record) {
    item.record->capture = this;
    item.record->captured = clock;
  }
  if (item.launch)
    launches.push_back(item.launch.get());
  items[stream.lane].push_back(std::move(item));
}

bool Capture::isJoined() const {
  for (uint32_t lane = 0; lane < lanes.size(); ++lane)
    if (clocks[0][lane] != items[lane].size())
      return false;
  return true;
}

GraphRun::GraphRun(Engine &engine, const Graph &of, const Stream &first)
    : graph(of) {
  for (size_t lane = 0; lane < graph.items.size(); ++lane) {
    lanes.push_back(engine.makeStream());
    lanes.back()->device = first.device;
    lanes.back()->owner = first.owner;
  }
}

void GraphRun::start(Engine &engine, const Stream &stream) {
  std::map<Record *, std::shared_ptr<Record>> records;
  std::map<Launch *, std::shared_ptr<Launch>> launches;
  for (Launch *captured : graph.launches) {
    auto copy = std::make_shared<Launch>(*captured);
    copy->sequence = engine.nextLaunch(stream.device);
    for (Message &message : copy->messages)
      message.launch = copy.get();
    for (Communicator *communicator : copy->communicators)
      communicator->order.push_back(copy.get());
    launches[captured] = std::move(copy);
  }
  for (size_t lane = 0; lane < lanes.size(); ++lane) {
    lanes[lane]->now = std::max(lanes[lane]->now, stream.now);
    lanes[lane]->clock.join(stream.clock);
    for (Item item : graph.items[lane]) {
      if (item.record) {
        std::shared_ptr<Record> &fresh = records[item.record.get()];
        if (!fresh)
          fresh = std::make_shared<Record>();
        item.record = fresh;
      }
      if (item.launch) {
        item.launch = launches[item.launch.get()];
        item.launch->stream = lanes[lane];
      }
      item.notBefore = 0;
      item.after.reset();
      lanes[lane]->items.push_back(std::move(item));
    }
  }
  engine.moved();
}

bool GraphRun::isOver() const {
  for (const Stream *lane : lanes)
    if (!Engine::isIdle(*lane))
      return false;
  return true;
}

void GraphRun::end(Stream &stream) {
  for (const Stream *lane : lanes) {
    stream.now = std::max(stream.now, lane->now);
    stream.clock.join(lane->clock);
  }
}

} // namespace sluice::cudadouble
