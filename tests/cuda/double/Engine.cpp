//===- tests/cuda/double/Engine.cpp - Streams, events, threads ------------===//
#include "tests/cuda/double/Engine.h"

#include "tests/cuda/double/Graph.h"

#include <chrono>
#include <cstdlib>

namespace sluice::cudadouble {

namespace {
/// The host function that a thread is inside.
struct Running {
  Stream *stream = nullptr;
  Ticks spent = 0;
  std::string label;
};
thread_local Running *runningFunction = nullptr;

/// Leaves the engine when its thread does.
struct ThreadHost {
  std::shared_ptr<Host> host = std::make_shared<Host>();
  ~ThreadHost() {
    const std::lock_guard lock(Engine::get().mutex);
    Engine::get().leave(*host);
  }
};
} // namespace

/// What a program that knows nothing of the double runs on.
Engine::Engine() {
  const auto take = [](const char *name, int &value) {
    if (const char *text = std::getenv(name))
      value = std::atoi(text);
  };
  take("SLUICE_DOUBLE_DEVICES", settings.devices);
  take("SLUICE_DOUBLE_DRIVER", settings.driverVersion);
  take("SLUICE_DOUBLE_NCCL", settings.ncclVersion);
}

Engine &Engine::get() {
  static Engine engine;
  return engine;
}

std::shared_ptr<Host> Engine::sharedHost() {
  thread_local ThreadHost self;
  hosts.insert(self.host);
  return self.host;
}

Host &Engine::host() { return *sharedHost(); }

/// Whoever made the thread joins it, and from then on knows what it knew.
void Engine::leave(Host &ended) {
  ended.streams = 0; // takes no further part
  for (const std::shared_ptr<Host> &each : hosts) {
    if (each.get() == &ended)
      continue;
    each->clock = std::make_shared<VectorClock>(*each->clock);
    each->clock->join(*ended.clock);
  }
}

bool Engine::isInFunction() { return runningFunction != nullptr; }

void Engine::reset(const Settings &next) {
  settings = next;
  streams.clear();
  for (Event *event : events)
    delete event;
  events.clear();
  communicators.clear();
  madeCommunicators.clear();
  cliques.clear();
  graphs.clear();
  libraries.clear();
  memory.clear();
  faults.clear();
  calls.clear();
  failing.clear();
  for (const std::shared_ptr<Host> &each : hosts)
    *each = Host();
  hosts.clear();
  linkFree.clear();
  hanging = 0;
  communicatorsFail = stuck = inLaunchOrder = false;
  waiting.clear();
  latest = ahead = 0;
  began = std::chrono::steady_clock::now();
  random.seed(settings.seed);
}

bool Engine::fails(const char *function) {
  const auto known = calls.find(std::string_view(function));
  ++(known != calls.end() ? known->second : calls[function]);
  if (failing.empty())
    return false;
  const auto found = failing.find(std::string_view(function));
  if (found == failing.end() || --found->second != 0)
    return false;
  failing.erase(found);
  return true;
}

void Engine::fault(Fault::Kind kind, const std::string &text) {
  for (const Fault &known : faults)
    if (known.kind == kind && known.text == text)
      return;
  faults.push_back({kind, text});
}

std::string Engine::nameOf(const Stream &stream) {
  return "stream " + std::to_string(stream.index) + " (device " +
         std::to_string(stream.device) + ")";
}

Stream *Engine::makeStream() {
  streams.push_back(std::make_unique<Stream>());
  streams.back()->index = static_cast<uint32_t>(streams.size() - 1);
  return streams.back().get();
}

bool Engine::isDeviceIdle(int device) const {
  return std::all_of(streams.begin(), streams.end(), [&](const auto &stream) {
    return stream->device != device || isIdle(*stream);
  });
}

void Engine::learn(Ticks when, const VectorClock &clock) {
  Host &self = host();
  self.now = std::max(self.now, when);
  if (settings.measureHostFunctions)
    ahead += std::max<Ticks>(0, when - sinceReset());
  if (self.clock.use_count() != 1) // what is enqueued keeps the old one
    self.clock = std::make_shared<VectorClock>(*self.clock);
  self.clock->join(clock);
}

Ticks Engine::sinceReset() const {
  return ahead + 1000 * std::chrono::duration_cast<std::chrono::nanoseconds>(
                            std::chrono::steady_clock::now() - began)
                            .count();
}

void Engine::enqueue(Stream &stream, Item item) {
  const Host &self = host();
  item.notBefore = self.now;
  if (settings.measureHostFunctions) // then hosts take time, too
    item.notBefore = std::max(item.notBefore, sinceReset());
  item.after = self.clock;
  const bool isOperation =
      item.kind != Item::Kind::Record && item.kind != Item::Kind::Wait;
  if (isOperation && hanging != 0)
    item.hangs = --hanging == 0;
  if (stream.capture) {
    stream.capture->note(stream, std::move(item));
    return;
  }
  stream.items.push_back(std::move(item));
  moved();
}

//===----------------------------------------------------------------------===//
// Working off
//===----------------------------------------------------------------------===//

bool Engine::canRun(const Stream &stream) const {
  if (stream.items.empty() || stream.busy)
    return false;
  const Item &item = stream.items.front();
  if (item.hangs)
    return false;
  switch (item.kind) {
  case Item::Kind::Record:
  case Item::Kind::Work:
  case Item::Kind::Function:
    return true;
  case Item::Kind::Wait:
    return item.record->done;
  case Item::Kind::Launch:
    return !item.started && canStart(*item.launch);
  case Item::Kind::Graph:
    return !item.started || item.graph->isOver();
  }
  return false;
}

/// A stream that can go on: the first in turn, or any.
Stream *Engine::pick() {
  const size_t count = streams.size();
  const size_t first =
      settings.seed != 0 && count != 0 ? random() % count : lookFirst;
  for (size_t i = 0; i < count; ++i) {
    const size_t at = (first + i) % count;
    if (!canRun(*streams[at]))
      continue;
    lookFirst = static_cast<uint32_t>(at);
    return streams[at].get();
  }
  return nullptr;
}

void Engine::pump(Lock &lock) {
  do
    while (Stream *stream = pick())
      run(*stream, lock);
  while (carryBetweenProcesses());
}

void Engine::finish(Stream &stream) {
  latest = std::max(latest, stream.now);
  stream.items.pop_front();
  moved();
}

void Engine::checkAccesses(Stream &stream, const Item &item) {
  for (const Access &access : item.accesses)
    memory.touch(access, stream.index, stream.clock,
                 std::string(item.call) + " of " + nameOf(stream));
}

void Engine::run(Stream &stream, Lock &lock) {
  Item &item = stream.items.front();
  if (!item.started) {
    stream.now = std::max(stream.now, item.notBefore);
    if (item.after)
      stream.clock.join(*item.after);
    stream.clock.advance(stream.index);
  }
  switch (item.kind) {
  case Item::Kind::Record:
    item.record->done = true;
    item.record->when = stream.now;
    item.record->clock = stream.clock;
    return finish(stream);
  case Item::Kind::Wait:
    stream.now = std::max(stream.now, item.record->when);
    stream.clock.join(item.record->clock);
    return finish(stream);
  case Item::Kind::Work:
    checkAccesses(stream, item);
    item.work();
    stream.now += settings.copyCost;
    return finish(stream);
  case Item::Kind::Function:
    return runFunction(stream, lock);
  case Item::Kind::Launch: {
    item.started = true;
    const std::shared_ptr<Launch> kept = item.launch;
    return start(*kept);
  }
  case Item::Kind::Graph:
    if (item.started) {
      item.graph->end(stream);
      return finish(stream);
    }
    item.started = true;
    return item.graph->start(*this, stream);
  }
}

/// Outside the lock: it may wait for what other threads do.
void Engine::runFunction(Stream &stream, Lock &lock) {
  const Item item = stream.items.front();
  Running self{&stream, 0, item.call};
  stream.busy = true;
  ++running;
  lock.unlock();
  const auto before = std::chrono::steady_clock::now();
  runningFunction = &self;
  item.function(item.argument);
  runningFunction = nullptr;
  const auto took = std::chrono::steady_clock::now() - before;
  lock.lock();
  --running;
  stream.busy = false;
  stream.now += self.spent;
  if (settings.measureHostFunctions)
    stream.now +=
        1000 *
        std::chrono::duration_cast<std::chrono::nanoseconds>(took).count();
  finish(stream);
}

//===----------------------------------------------------------------------===//
// Deadlocks
//===----------------------------------------------------------------------===//

/// Every thread that has streams waits, has looked twice, and nothing moves.
bool Engine::isStuck() const {
  if (running != 0 || betweenProcesses ||
      std::all_of(streams.begin(), streams.end(),
                  [](const auto &stream) { return stream->items.empty(); }))
    return false;
  bool any = false;
  for (const std::shared_ptr<Host> &each : hosts) {
    if (each->streams == 0)
      continue;
    any = true;
    if (each->waitedAt != 2 * version + 1)
      return false;
  }
  return any;
}

/// The heads of all streams that stand.
std::string Engine::whoStands() const {
  std::string text;
  for (const auto &stream : streams) {
    if (stream->items.empty())
      continue;
    const Item &item = stream->items.front();
    text += (text.empty() ? "" : "; ") + nameOf(*stream) + " at ";
    if (!item.launch) {
      text += item.call;
      continue;
    }
    const char *between = "";
    for (const Message &message : item.launch->messages)
      if (!message.ended) {
        text += between + describe(message);
        between = ", ";
      }
    text += item.started ? "" : ", not started";
  }
  return text;
}

void Engine::noteWaiting() {
  Host &self = host();
  // Odd: has looked at this state at least twice.
  self.waitedAt = self.waitedAt / 2 == version ? 2 * version + 1 : 2 * version;
  if (stuck || !isStuck())
    return;
  stuck = true;
  fault(Fault::Kind::Deadlock, whoStands());
  changed.notify_all();
}

//===----------------------------------------------------------------------===//
// For tests
//===----------------------------------------------------------------------===//

void reset(const Settings &settings) {
  Engine &engine = Engine::get();
  const std::lock_guard lock(engine.mutex);
  engine.reset(settings);
}

std::vector<Fault> faults() {
  Engine &engine = Engine::get();
  const std::lock_guard lock(engine.mutex);
  return engine.faults;
}

std::vector<Fault> faults(Fault::Kind kind) {
  std::vector<Fault> found = faults();
  std::erase_if(found, [&](const Fault &each) { return each.kind != kind; });
  return found;
}

std::map<std::string, uint64_t> calls() {
  Engine &engine = Engine::get();
  const std::lock_guard lock(engine.mutex);
  return {engine.calls.begin(), engine.calls.end()};
}

std::map<std::string, uint64_t> objects() {
  Engine &engine = Engine::get();
  const std::lock_guard lock(engine.mutex);
  std::map<std::string, uint64_t> counts = {
      {"events", engine.events.size()},
      {"allocations", engine.memory.count()},
      {"communicators", engine.communicators.size()},
      {"graphs", engine.graphs.size()},
      {"libraries", engine.libraries.size()}};
  for (const auto &stream : engine.streams)
    counts["streams"] += stream->live;
  std::erase_if(counts, [](const auto &each) { return each.second == 0; });
  return counts;
}

void failCall(const std::string &function, uint64_t number) {
  Engine &engine = Engine::get();
  const std::lock_guard lock(engine.mutex);
  engine.failing[function] = number;
}

void hangOperation(uint64_t number) {
  Engine &engine = Engine::get();
  const std::lock_guard lock(engine.mutex);
  engine.hanging = number;
}

void failCommunicators() {
  Engine &engine = Engine::get();
  const std::lock_guard lock(engine.mutex);
  engine.communicatorsFail = true;
}

Ticks virtualTime() {
  Engine &engine = Engine::get();
  const std::lock_guard lock(engine.mutex);
  return engine.latest;
}

void spend(Ticks time) {
  if (runningFunction)
    runningFunction->spent += time;
}

void touches(const void *data, size_t bytes, bool writes) {
  if (!runningFunction)
    return;
  Engine &engine = Engine::get();
  const std::lock_guard lock(engine.mutex);
  const Stream &stream = *runningFunction->stream;
  engine.memory.touch({data, bytes, writes}, stream.index, stream.clock,
                      runningFunction->label + " of " + Engine::nameOf(stream));
}

void label(const std::string &name) {
  if (runningFunction)
    runningFunction->label = name;
}

} // namespace sluice::cudadouble
