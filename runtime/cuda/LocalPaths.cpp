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

/// In order of the seats, in the first one's buffer.
Answer LocalPath::sum(const Work &on) {
  void *const total = seats[0].work.data;
  for (size_t seat = 1; seat < seats.size(); ++seat)
    if (Answer answer = answerOf(addInPlace(on.stream, on.element, total,
                                            seats[seat].work.data, on.bytes),
                                 "cudaLaunchKernel");
        !answer.ok())
      return answer;
  return {};
}

/// Gives `to` the part of seat `of` that lies with `from`: into the buffer for
/// it, if `to` has one.
Answer LocalPath::hand(size_t of, size_t from, size_t to, const Work &on) {
  const Bytes part = on.bytes / seats.size();
  const auto at = [&](size_t seat) {
    return static_cast<std::byte *>(seats[seat].work.data) + of * part;
  };
  void *const target = seats[to].work.part ? seats[to].work.part : at(to);
  return target == at(from) ? Answer()
                            : copy(target, at(from), part, on.stream);
}

/// A collective: what is summed lies with the first then.
Answer LocalPath::meet(const Work &on) {
  const bool gathers = on.pattern == Pattern::AllGather;
  Answer answer = gathers ? Answer() : sum(on);
  for (size_t to = 0; to < seats.size() && answer.ok(); ++to) {
    if (on.pattern == Pattern::AllReduce && to != 0)
      answer =
          copy(seats[to].work.data, seats[0].work.data, on.bytes, on.stream);
    if (on.pattern == Pattern::ReduceScatter)
      answer = hand(to, 0, to, on);
    for (size_t of = 0; of < seats.size() && gathers && answer.ok(); ++of)
      answer = hand(of, of, to, on);
  }
  return answer;
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
  if (Answer answer = on.pattern == Pattern::None ? move(on) : meet(on);
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
