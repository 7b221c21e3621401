//===- runtime/cuda/CudaSums.cpp - Collectives, sums in order of ranks ----===//
//
// A sum must have the same bits on every rank and in every run, and those are
// the bits of a sum in order of ranks; NCCL's own starts each part at another
// rank. So each rank gets a slice of what all have, adds it in order of ranks,
// and sends the result to all: the bytes on the wires are those of a ring,
// 2 (n - 1) / n of the data a rank (Patarasuk and Yuan 2009, section 3). A
// reduce-scatter is the first half of that, an all-gather the second.
//
//===----------------------------------------------------------------------===//
#include "runtime/cuda/CudaBackend.h"
#include "runtime/cuda/CudaScratch.h"
#include "runtime/cuda/Kernels.h"

namespace sluice::runtime::cuda {

/// One launch of NCCL: all send what they have of others' slices to them (and
/// get their own of others, into scratch), or, where `gathers`, their own to
/// all others.
Answer CudaBackend::exchange(Sum &sum, std::byte *data, const Slices &slices,
                             bool gathers) {
  const Bytes own = slices.size(sum.seat);
  Answer answer = answerOf(ncclGroupStart(), "ncclGroupStart");
  if (!answer.ok())
    return answer;
  const auto move = [&](bool sends, size_t other, std::byte *what,
                        Bytes count) {
    if (!answer.ok() || count == 0)
      return;
    const int peer = sum.positions[other];
    answer = sends ? answerOf(ncclSend(what, count, ncclInt8, peer,
                                       sum.member->handle, sum.stream),
                              "ncclSend")
                   : answerOf(ncclRecv(what, count, ncclInt8, peer,
                                       sum.member->handle, sum.stream),
                              "ncclRecv");
  };
  for (size_t other = 0; other < slices.seats; ++other) {
    if (other == sum.seat)
      continue;
    std::byte *const its = data + slices.begin(other);
    move(true, other, gathers ? data + slices.begin(sum.seat) : its,
         gathers ? own : slices.size(other));
    move(false, other, gathers ? its : sum.scratch + other * own,
         gathers ? slices.size(other) : own);
  }
  if (Answer ended = answerOf(ncclGroupEnd(), "ncclGroupEnd"); answer.ok())
    answer = std::move(ended);
  return answer.ok() ? settle(*sum.member) : answer;
}

/// The own slice becomes the sum of all, in order of ranks.
Answer CudaBackend::addSlices(Sum &sum, Element element, std::byte *own,
                              Bytes bytes) {
  const auto partOf = [&](size_t seat) {
    return seat == sum.seat ? own : sum.scratch + seat * bytes;
  };
  std::byte *const total = partOf(0);
  for (size_t seat = 1; seat < sum.positions.size(); ++seat)
    if (Answer answer = answerOf(
            addInPlace(sum.stream, element, total, partOf(seat), bytes),
            "cudaLaunchKernel");
        !answer.ok())
      return answer;
  if (total == own || bytes == 0)
    return {};
  return answerOf(
      cudaMemcpyAsync(own, total, bytes, cudaMemcpyDefault, sum.stream),
      "cudaMemcpyAsync");
}

/// A collective of nothing is a meeting all the same.
Answer CudaBackend::meetOnly(Sum &sum) {
  Answer answer = answerOf(ncclGroupStart(), "ncclGroupStart");
  if (!answer.ok())
    return answer;
  for (size_t other = 0; other < sum.positions.size(); ++other) {
    if (other == sum.seat || !answer.ok())
      continue;
    const int peer = sum.positions[other];
    answer = answerOf(
        ncclSend(pad, 1, ncclInt8, peer, sum.member->handle, sum.stream),
        "ncclSend");
    if (answer.ok())
      answer = answerOf(ncclRecv(sum.scratch + other, 1, ncclInt8, peer,
                                 sum.member->handle, sum.stream),
                        "ncclRecv");
  }
  if (Answer ended = answerOf(ncclGroupEnd(), "ncclGroupEnd"); answer.ok())
    answer = std::move(ended);
  return answer.ok() ? settle(*sum.member) : answer;
}

/// From the lane's stream to that of the collective.
Answer CudaBackend::forkSum(Lane &lane, const Command &command) {
  Sum &sum = sums[command.number];
  Answer answer =
      answerOf(cudaEventRecord(sum.begin, lane.stream), "cudaEventRecord");
  if (answer.ok())
    answer = answerOf(cudaStreamWaitEvent(sum.stream, sum.begin, 0),
                      "cudaStreamWaitEvent");
  return answer;
}

/// On the stream of the collective; the caller comes back from there.
Answer CudaBackend::meetAll(const Command &command) {
  Sum &sum = sums[command.number];
  Answer answer =
      answerOf(cudaSetDevice(device), "cudaSetDevice"); // of kernels
  auto *const data = static_cast<std::byte *>(command.data);
  const Bytes unit = bytesOf(command.element);
  const size_t seats = sum.positions.size();
  Slices slices = {seats, command.bytes, unit,
                   kScratchBytes / unit / seats * unit};
  if (command.bytes == 0 && seats > 1 && answer.ok())
    answer = meetOnly(sum);
  while (slices.left() && seats > 1 && answer.ok()) {
    const bool sums = command.pattern != Pattern::AllGather;
    if (sums)
      answer = exchange(sum, data, slices, false);
    if (const Bytes own = slices.size(sum.seat); sums && own && answer.ok())
      answer =
          addSlices(sum, command.element, data + slices.begin(sum.seat), own);
    if (command.pattern != Pattern::ReduceScatter && answer.ok())
      answer = exchange(sum, data, slices, true);
    slices.done += slices.most;
  }
  if (const Bytes own = command.bytes / seats;
      command.part && own != 0 && answer.ok())
    answer = answerOf(cudaMemcpyAsync(command.part, data + sum.seat * own, own,
                                      cudaMemcpyDefault, sum.stream),
                      "cudaMemcpyAsync");
  if (answer.ok())
    answer = answerOf(cudaEventRecord(sum.end, sum.stream), "cudaEventRecord");
  return answer;
}

} // namespace sluice::runtime::cuda
