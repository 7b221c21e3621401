//===- tests/cuda/double/Cudart.cpp - The CUDA runtime, as far as used ----===//
#include "tests/cuda/double/Graph.h"

#include <cstring>

using namespace sluice::cudadouble;

namespace {

/// One call: takes the lock, and says what it is to return before it begins.
class Call {
public:
  explicit Call(const char *function) : engine(Engine::get()), name(function) {
    if (Engine::isInFunction()) {
      const std::lock_guard other(engine.mutex);
      engine.fault(Fault::Kind::Misuse,
                   std::string(function) + " in a host function");
      refused = cudaErrorNotPermitted;
      return;
    }
    lock = Engine::Lock(engine.mutex);
    if (engine.fails(function))
      refused = cudaErrorUnknown;
  }
  cudaError_t misuse(cudaError_t code, const std::string &what) const {
    engine.fault(Fault::Kind::Misuse, std::string(name) + ": " + what);
    return code;
  }
  /// What may not be while the thread captures: it would need an answer.
  cudaError_t unlessCapturing(const Stream &stream) const {
    if (!stream.capture)
      return cudaSuccess;
    stream.capture->invalid = true;
    return misuse(cudaErrorStreamCaptureUnsupported, "on a capturing stream");
  }

  Engine &engine;
  Engine::Lock lock;
  cudaError_t refused = cudaSuccess;

private:
  const char *name;
};

Stream *streamOf(cudaStream_t handle) {
  return reinterpret_cast<Stream *>(handle);
}
Event *eventOf(cudaEvent_t handle) { return reinterpret_cast<Event *>(handle); }

Item work(const char *call, std::vector<Access> accesses,
          std::function<void()> body) {
  Item item;
  item.kind = Item::Kind::Work;
  item.call = call;
  item.accesses = std::move(accesses);
  item.work = std::move(body);
  return item;
}

} // namespace

extern "C" {

//===----------------------------------------------------------------------===//
// Devices and memory
//===----------------------------------------------------------------------===//

cudaError_t cudaGetDeviceCount(int *count) {
  Call call("cudaGetDeviceCount");
  if (call.refused != cudaSuccess)
    return call.refused;
  if (call.engine.settings.devices == 0)
    return cudaErrorNoDevice; // and leaves the count alone
  *count = call.engine.visibleDevices();
  return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *version) {
  Call call("cudaDriverGetVersion");
  *version = call.engine.settings.driverVersion;
  return call.refused;
}

cudaError_t cudaSetDevice(int device) {
  Call call("cudaSetDevice");
  if (call.refused != cudaSuccess)
    return call.refused;
  if (device < 0 || device >= call.engine.visibleDevices())
    return cudaErrorInvalidDevice;
  call.engine.host().device = device;
  return cudaSuccess;
}

cudaError_t cudaGetDevice(int *device) {
  Call call("cudaGetDevice");
  *device = call.engine.host().device;
  return call.refused;
}

cudaError_t cudaMemGetInfo(size_t *free, size_t *total) {
  Call call("cudaMemGetInfo");
  *total = call.engine.settings.deviceMemory;
  *free = *total - call.engine.memory.used(call.engine.host().device);
  return call.refused;
}

static cudaError_t allocate(Call &call, void **data, size_t bytes, int device) {
  if (call.refused != cudaSuccess)
    return call.refused;
  *data = call.engine.memory.allocate(device, bytes);
  return *data ? cudaSuccess : cudaErrorMemoryAllocation;
}

cudaError_t cudaMalloc(void **data, size_t bytes) {
  Call call("cudaMalloc");
  return allocate(call, data, bytes, call.engine.host().device);
}

cudaError_t cudaHostAlloc(void **data, size_t bytes, unsigned) {
  Call call("cudaHostAlloc");
  return allocate(call, data, bytes, Memory::kHost);
}

/// Waits for the device, as the real ones do.
static cudaError_t release(Call &call, void *data, bool onHost) {
  if (call.refused != cudaSuccess)
    return call.refused;
  Engine &engine = call.engine;
  const int device = engine.host().device;
  engine.pump(call.lock);
  while (!engine.isDeviceIdle(device)) {
    engine.pump(call.lock);
    if (engine.changed.wait_for(call.lock, std::chrono::seconds(2)) ==
        std::cv_status::timeout)
      return call.misuse(cudaErrorLaunchTimeout, "waits for ever");
  }
  return engine.memory.free(data, onHost)
             ? cudaSuccess
             : call.misuse(cudaErrorInvalidValue, "was not allocated");
}

cudaError_t cudaFree(void *data) {
  Call call("cudaFree");
  return release(call, data, false);
}

cudaError_t cudaFreeHost(void *data) {
  Call call("cudaFreeHost");
  return release(call, data, true);
}

cudaError_t cudaMemsetAsync(void *data, int value, size_t bytes,
                            cudaStream_t stream) {
  Call call("cudaMemsetAsync");
  if (call.refused != cudaSuccess)
    return call.refused;
  if (!call.engine.memory.holds(data, bytes))
    return call.misuse(cudaErrorIllegalAddress, "outside of all memory");
  call.engine.enqueue(*streamOf(stream),
                      work("cudaMemsetAsync", {{data, bytes, true}},
                           [=] { std::memset(data, value, bytes); }));
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes,
                            cudaMemcpyKind, cudaStream_t stream) {
  Call call("cudaMemcpyAsync");
  if (call.refused != cudaSuccess)
    return call.refused;
  if (!call.engine.memory.holds(to, bytes) ||
      !call.engine.memory.holds(from, bytes))
    return call.misuse(cudaErrorIllegalAddress, "outside of all memory");
  call.engine.enqueue(*streamOf(stream),
                      work("cudaMemcpyAsync",
                           {{from, bytes, false}, {to, bytes, true}},
                           [=] { std::memmove(to, from, bytes); }));
  return cudaSuccess;
}

//===----------------------------------------------------------------------===//
// Streams
//===----------------------------------------------------------------------===//

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags) {
  Call call("cudaStreamCreateWithFlags");
  if (call.refused != cudaSuccess)
    return call.refused;
  if (flags != cudaStreamNonBlocking)
    return call.misuse(cudaErrorInvalidValue, "waits for the default stream");
  Stream *made = call.engine.makeStream();
  made->owner = call.engine.sharedHost();
  made->device = made->owner->device;
  ++made->owner->streams;
  *stream = reinterpret_cast<cudaStream_t>(made);
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  Call call("cudaStreamDestroy");
  if (call.refused != cudaSuccess)
    return call.refused;
  Stream &of = *streamOf(stream);
  if (!of.live)
    return call.misuse(cudaErrorInvalidResourceHandle, "twice");
  of.live = false;
  if (of.owner->streams != 0)
    --of.owner->streams;
  return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  Call call("cudaStreamQuery");
  if (call.refused != cudaSuccess)
    return call.refused;
  Stream &of = *streamOf(stream);
  if (cudaError_t error = call.unlessCapturing(of))
    return error;
  if (!call.engine.ask(call.lock, [&] { return Engine::isIdle(of); }))
    return call.engine.stuck && call.engine.settings.failOnDeadlock
               ? cudaErrorLaunchTimeout
               : cudaErrorNotReady;
  call.engine.learn(of.now, of.clock);
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  Call call("cudaStreamSynchronize");
  if (call.refused != cudaSuccess)
    return call.refused;
  Stream &of = *streamOf(stream);
  if (cudaError_t error = call.unlessCapturing(of))
    return error;
  if (!call.engine.await(call.lock, [&] { return Engine::isIdle(of); }))
    return cudaErrorLaunchTimeout;
  call.engine.learn(of.now, of.clock);
  return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event,
                                unsigned) {
  Call call("cudaStreamWaitEvent");
  if (call.refused != cudaSuccess)
    return call.refused;
  const std::shared_ptr<Record> record = eventOf(event)->latest;
  if (!record)
    return cudaSuccess; // of an event that was never recorded
  if (record->over)
    return call.misuse(cudaErrorCapturedEvent, "for an event of a capture");
  Stream &of = *streamOf(stream);
  if (record->capture && !of.capture)
    record->capture->join(of);
  if (of.capture && record->capture != of.capture) {
    of.capture->invalid = true;
    return call.misuse(cudaErrorStreamCaptureIsolation,
                       "for an event from outside of the capture");
  }
  Item item;
  item.kind = Item::Kind::Wait;
  item.call = "cudaStreamWaitEvent";
  item.record = record;
  call.engine.enqueue(of, std::move(item));
  return cudaSuccess;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function,
                               void *argument) {
  Call call("cudaLaunchHostFunc");
  if (call.refused != cudaSuccess)
    return call.refused;
  Item item;
  item.kind = Item::Kind::Function;
  item.call = "cudaLaunchHostFunc";
  item.function = function;
  item.argument = argument;
  call.engine.enqueue(*streamOf(stream), std::move(item));
  return cudaSuccess;
}

//===----------------------------------------------------------------------===//
// Events
//===----------------------------------------------------------------------===//

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags) {
  Call call("cudaEventCreateWithFlags");
  if (call.refused != cudaSuccess)
    return call.refused;
  auto *made = new Event{call.engine.host().device,
                         (flags & cudaEventDisableTiming) == 0, nullptr};
  call.engine.events.insert(made);
  *event = reinterpret_cast<cudaEvent_t>(made);
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  Call call("cudaEventDestroy");
  if (call.refused != cudaSuccess)
    return call.refused;
  if (call.engine.events.erase(eventOf(event)) == 0)
    return call.misuse(cudaErrorInvalidResourceHandle, "twice");
  delete eventOf(event);
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  Call call("cudaEventRecord");
  if (call.refused != cudaSuccess)
    return call.refused;
  Event &of = *eventOf(event);
  if (of.device != streamOf(stream)->device)
    return call.misuse(cudaErrorInvalidResourceHandle,
                       "on a stream of another device");
  Item item;
  item.kind = Item::Kind::Record;
  item.call = "cudaEventRecord";
  item.record = of.latest = std::make_shared<Record>();
  call.engine.enqueue(*streamOf(stream), std::move(item));
  return cudaSuccess;
}

static cudaError_t captured(Call &call, const Event &event) {
  if (!event.latest || (!event.latest->capture && !event.latest->over))
    return cudaSuccess;
  return call.misuse(cudaErrorCapturedEvent, "of an event of a capture");
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  Call call("cudaEventQuery");
  if (call.refused != cudaSuccess)
    return call.refused;
  const Event &of = *eventOf(event);
  if (cudaError_t error = captured(call, of))
    return error;
  const std::shared_ptr<Record> record = of.latest;
  if (!record)
    return cudaSuccess;
  if (!call.engine.ask(call.lock, [&] { return record->done; }))
    return call.engine.stuck && call.engine.settings.failOnDeadlock
               ? cudaErrorLaunchTimeout
               : cudaErrorNotReady;
  call.engine.learn(record->when, record->clock);
  return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start,
                                 cudaEvent_t end) {
  Call call("cudaEventElapsedTime");
  if (call.refused != cudaSuccess)
    return call.refused;
  const Event &first = *eventOf(start), &last = *eventOf(end);
  if (!first.timed || !last.timed || !first.latest || !last.latest ||
      first.device != last.device)
    return call.misuse(cudaErrorInvalidResourceHandle, "of such events");
  if (!first.latest->done || !last.latest->done)
    return cudaErrorNotReady;
  *ms = static_cast<float>(
      1e-9 * static_cast<double>(last.latest->when - first.latest->when));
  return cudaSuccess;
}

//===----------------------------------------------------------------------===//
// Graphs
//===----------------------------------------------------------------------===//

static std::map<Stream *, std::unique_ptr<Capture>> &captures() {
  static std::map<Stream *, std::unique_ptr<Capture>> open;
  return open;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  Call call("cudaStreamBeginCapture");
  if (call.refused != cudaSuccess)
    return call.refused;
  Stream *of = streamOf(stream);
  if (of->capture)
    return call.misuse(cudaErrorIllegalState, "twice");
  captures()[of] = std::make_unique<Capture>();
  captures()[of]->join(*of);
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph) {
  Call call("cudaStreamEndCapture");
  const auto open = captures().find(streamOf(stream));
  if (open == captures().end())
    return call.misuse(cudaErrorIllegalState, "without a begin");
  const std::unique_ptr<Capture> capture = std::move(open->second);
  captures().erase(open);
  for (Stream *lane : capture->lanes)
    lane->capture = nullptr;
  for (const std::vector<Item> &lane : capture->items)
    for (const Item &item : lane)
      if (item.record) {
        item.record->capture = nullptr;
        item.record->over = true;
      }
  *graph = nullptr;
  if (call.refused != cudaSuccess)
    return call.refused;
  if (capture->invalid)
    return cudaErrorStreamCaptureInvalidated;
  if (!capture->isJoined())
    return cudaErrorStreamCaptureUnjoined; // the way to drop a capture
  auto *made =
      new Graph{std::move(capture->items), std::move(capture->launches)};
  call.engine.graphs.insert(made);
  *graph = reinterpret_cast<cudaGraph_t>(made);
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph,
                                 unsigned long long) {
  Call call("cudaGraphInstantiate");
  if (call.refused != cudaSuccess)
    return call.refused;
  Stream first;
  first.owner = call.engine.sharedHost();
  first.device = first.owner->device;
  auto *made =
      new GraphRun(call.engine, *reinterpret_cast<Graph *>(graph), first);
  call.engine.graphs.insert(made);
  *exec = reinterpret_cast<cudaGraphExec_t>(made);
  return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  Call call("cudaGraphLaunch");
  if (call.refused != cudaSuccess)
    return call.refused;
  Item item;
  item.kind = Item::Kind::Graph;
  item.call = "cudaGraphLaunch";
  item.graph = std::shared_ptr<GraphRun>(reinterpret_cast<GraphRun *>(exec),
                                         [](GraphRun *) {});
  call.engine.enqueue(*streamOf(stream), std::move(item));
  return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  Call call("cudaGraphDestroy");
  auto *of = reinterpret_cast<Graph *>(graph);
  if (call.engine.graphs.erase(of) == 0)
    return call.misuse(cudaErrorInvalidValue, "twice");
  delete of;
  return call.refused;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  Call call("cudaGraphExecDestroy");
  auto *of = reinterpret_cast<GraphRun *>(exec);
  if (call.engine.graphs.erase(of) == 0)
    return call.misuse(cudaErrorInvalidValue, "twice");
  for (Stream *lane : of->lanes)
    lane->live = false;
  delete of;
  return call.refused;
}

//===----------------------------------------------------------------------===//
// Errors
//===----------------------------------------------------------------------===//

cudaError_t cudaGetLastError() { return cudaSuccess; }

const char *cudaGetErrorString(cudaError_t error) {
  switch (error) {
  case cudaSuccess:
    return "no error";
  case cudaErrorMemoryAllocation:
    return "out of memory";
  case cudaErrorNoDevice:
    return "no CUDA-capable device is detected";
  case cudaErrorLaunchTimeout:
    return "the launch timed out and was terminated";
  case cudaErrorUnknown:
    return "unknown error";
  default:
    return "an error of the double";
  }
}

} // extern "C"
