//===- runtime/cuda/LocalPaths.cpp ----------------------------------------===//
#include "runtime/cuda/LocalPaths.h"

#include "runtime/cuda/Kernels.h"

namespace sluice::runtime::cuda {

static Answer copy(void *to, const void *from, Bytes bytes,
                   cudaStream_t stream) {
  if (bytes == 0)
    return {};
  return answerOf(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream),
                  "cudaMemcpyAsync");
}

Answer LocalPath::move(const Work &on) {
  return copy(seats[1].work.data, seats[0].work.data, on.bytes, on.stream);
}

/// In order of the seats, in the first one's buffer; then all get it.
Answer LocalPath::sum(const Work &on) {
  void *const total = seats[0].work.data;
  for (size_t seat = 1; seat < seats.size(); ++seat)
    if (Answer answer = answerOf(addInPlace(on.stream, on.element, total,
                                            seats[seat].work.data, on.bytes),
                                 "cudaLaunchKernel");
        !answer.ok())
      return answer;
  for (size_t seat = 1; seat < seats.size(); ++seat)
    if (Answer answer = copy(seats[seat].work.data, total, on.bytes, on.stream);
        !answer.ok())
      return answer;
  return {};
}

/// All ends are there: moves the data on the stream of `seat`.
Answer LocalPath::enqueue(size_t seat) {
  const Work &on = seats[seat].work;
  for (size_t other = 0; other < seats.size(); ++other)
    if (other != seat)
      if (Answer answer =
              answerOf(cudaStreamWaitEvent(on.stream, seats[other].ready, 0),
                       "cudaStreamWaitEvent");
          !answer.ok())
        return answer;
  if (Answer answer = on.element == Element::None ? move(on) : sum(on);
      !answer.ok())
    return answer;
  last = seats[seat].done;
  return answerOf(cudaEventRecord(last, on.stream), "cudaEventRecord");
}

LocalPath::Posted LocalPath::post(size_t seat, const Work &work,
                                  Answer &answer) {
  const std::lock_guard lock(mutex);
  Seat &mine = seats[seat];
  mine.work = work;
  mine.seen = completed;
  if (taken + 1 != seats.size()) {
    answer =
        answerOf(cudaEventRecord(mine.ready, work.stream), "cudaEventRecord");
    if (!answer.ok())
      return Posted::Failed;
    ++taken;
    mine.pending = true;
    return Posted::Waits;
  }
  answer = enqueue(seat);
  if (!answer.ok())
    return Posted::Failed;
  taken = 0;
  ++completed;
  return Posted::Ended;
}

LocalPath::Posted LocalPath::join(size_t seat, Answer &answer) {
  const std::lock_guard lock(mutex);
  Seat &mine = seats[seat];
  if (completed == mine.seen)
    return Posted::Waits;
  answer = answerOf(cudaStreamWaitEvent(mine.work.stream, last, 0),
                    "cudaStreamWaitEvent");
  mine.pending = false;
  return answer.ok() ? Posted::Ended : Posted::Failed;
}

} // namespace sluice::runtime::cuda
