//===- runtime/cuda/CudaGraphs.cpp - A step captured once -----------------===//
//
// The first step is captured instead of run: all streams leave the first one
// by an event and come back by one each, so that CUDA sees one graph. From then
// on a step is one launch. All messages of a step are in its graph, on every
// rank, and the graph goes before the communicators do, as NCCL asks. A step
// whose times are recorded is run without it.
//
//===----------------------------------------------------------------------===//
#include "runtime/cuda/CudaBackend.h"

namespace sluice::runtime::cuda {

std::vector<cudaStream_t> CudaBackend::otherStreams() const {
  return {ownStreams.begin() + 1, ownStreams.end()};
}

/// What comes on `after` waits for what is on `before`.
Answer CudaBackend::order(cudaStream_t after, cudaStream_t before,
                          cudaEvent_t event) {
  Answer answer = answerOf(cudaEventRecord(event, before), "cudaEventRecord");
  return answer.ok() ? answerOf(cudaStreamWaitEvent(after, event, 0),
                                "cudaStreamWaitEvent")
                     : answer;
}

Answer CudaBackend::beginCapture() {
  const cudaStream_t first = ownStreams.front();
  Answer answer =
      answerOf(cudaStreamBeginCapture(first, cudaStreamCaptureModeThreadLocal),
               "cudaStreamBeginCapture");
  if (!answer.ok())
    return answer;
  mode = Mode::Capture;
  for (const cudaStream_t other : otherStreams())
    if (answer.ok())
      answer = order(other, first, forkEvent);
  return answer;
}

bool CudaBackend::beginStep() {
  mode = Mode::Direct;
  if (!world.usesGraphs() || times || hasFailed || world.aborted())
    return true;
  if (graph) {
    mode = Mode::Replay;
    return false;
  }
  if (Answer answer = beginCapture(); !answer.ok())
    fail(kNone, answer.fault);
  return true;
}

Answer CudaBackend::instantiate() {
  cudaGraph_t captured = nullptr;
  Answer answer = answerOf(cudaStreamEndCapture(ownStreams.front(), &captured),
                           "cudaStreamEndCapture");
  mode = Mode::Replay;
  if (answer.ok())
    answer = answerOf(cudaGraphInstantiate(&graph, captured, 0),
                      "cudaGraphInstantiate");
  if (!captured)
    return answer;
  Answer dropped = answerOf(cudaGraphDestroy(captured), "cudaGraphDestroy");
  return answer.ok() ? dropped : answer;
}

/// All streams come back to the first.
Answer CudaBackend::endCapture() {
  Answer answer;
  const std::vector<cudaStream_t> others = otherStreams();
  for (size_t i = 0; i < others.size(); ++i)
    if (answer.ok())
      answer = order(ownStreams.front(), others[i], joinEvents[i]);
  for (Lane &lane : lanes) {
    for (uint32_t i = 0; i < lane.markTail; ++i)
      lane.captured += lane.marks[i].count;
    lane.markTail = 0;
  }
  return answer.ok() ? instantiate() : answer;
}

/// One launch; its end is that of all operations.
Answer CudaBackend::replay() {
  const cudaStream_t first = ownStreams.front();
  Answer answer = answerOf(cudaGraphLaunch(graph, first), "cudaGraphLaunch");
  if (answer.ok())
    answer = answerOf(cudaEventRecord(graphEvent, first), "cudaEventRecord");
  return answer;
}

/// A capture that came to nothing: the streams must be free of it.
void CudaBackend::dropCapture() {
  if (mode != Mode::Capture)
    return;
  mode = Mode::Direct;
  cudaGraph_t captured = nullptr;
  (void)cudaStreamEndCapture(ownStreams.front(), &captured);
  if (captured)
    (void)cudaGraphDestroy(captured);
  (void)cudaGetLastError();
}

} // namespace sluice::runtime::cuda
