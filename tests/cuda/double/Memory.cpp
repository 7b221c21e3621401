//===- tests/cuda/double/Memory.cpp ---------------------------------------===//
#include "tests/cuda/double/Memory.h"

#include "tests/cuda/double/Engine.h"

#include <cstring>
#include <new>

namespace sluice::cudadouble {

static constexpr std::align_val_t kAlignment{512};

void Memory::poison(void *data, size_t bytes) {
  if (bytes != 0)
    std::memset(data, 0xff, bytes);
}

size_t Memory::used(int device) const {
  size_t sum = 0;
  for (const auto &[at, block] : blocks)
    if (block.device == device)
      sum += block.bytes;
  return sum;
}

void *Memory::allocate(int device, size_t bytes) {
  if (device != kHost && bytes > engine.settings.deviceMemory - used(device))
    return nullptr;
  void *data = ::operator new(bytes, kAlignment, std::nothrow);
  if (!data)
    return nullptr;
  poison(data, bytes);
  blocks[reinterpret_cast<uintptr_t>(data)] = {bytes, device};
  return data;
}

bool Memory::free(void *data, bool onHost) {
  const auto found = blocks.find(reinterpret_cast<uintptr_t>(data));
  if (found == blocks.end() || (found->second.device == kHost) != onHost)
    return false;
  const uintptr_t begin = found->first;
  const uintptr_t end = begin + found->second.bytes;
  splitAt(begin);
  splitAt(end);
  spans.erase(spans.lower_bound(begin), spans.lower_bound(end));
  poison(data, found->second.bytes);
  blocks.erase(found);
  ::operator delete(data, kAlignment);
  return true;
}

void Memory::clear() {
  for (const auto &[at, block] : blocks)
    ::operator delete(reinterpret_cast<void *>(at), kAlignment);
  blocks.clear();
  spans.clear();
  names.clear();
  numbers.clear();
}

bool Memory::holds(const void *data, size_t bytes) const {
  const auto at = reinterpret_cast<uintptr_t>(data);
  auto after = blocks.upper_bound(at);
  if (after == blocks.begin())
    return false;
  --after;
  return at - after->first <= after->second.bytes &&
         bytes <= after->second.bytes - (at - after->first);
}

//===----------------------------------------------------------------------===//
// Races
//===----------------------------------------------------------------------===//

/// Makes a span begin at `at`, if one goes over it.
Memory::Spans::iterator Memory::splitAt(uintptr_t at) {
  auto after = spans.lower_bound(at);
  if (after == spans.begin())
    return after;
  const auto before = std::prev(after);
  if (before->second.end <= at)
    return after;
  Span rest = before->second;
  before->second.end = at;
  return spans.emplace(at, std::move(rest)).first;
}

uint32_t Memory::nameOf(const std::string &who) {
  const auto [entry, isNew] =
      numbers.try_emplace(who, static_cast<uint32_t>(names.size()));
  if (isNew)
    names.push_back(who);
  return entry->second;
}

void Memory::conflict(const Touch &earlier, const std::string &who, bool writes,
                      bool wrote, size_t bytes) {
  engine.fault(Fault::Kind::Race,
               names[earlier.who] + (wrote ? " writes" : " reads") + " and " +
                   who + (writes ? " writes" : " reads") + " the same " +
                   std::to_string(bytes) + " bytes, and nothing orders them");
}

void Memory::touch(const Access &access, uint32_t stream,
                   const VectorClock &clock, const std::string &who) {
  if (access.bytes == 0)
    return;
  const auto begin = reinterpret_cast<uintptr_t>(access.data);
  const uintptr_t end = begin + access.bytes;
  const Touch now{stream, clock[stream], nameOf(who)};
  splitAt(begin);
  splitAt(end);
  const auto isUnknown = [&](const Touch &earlier) {
    return earlier.tick > clock[earlier.stream];
  };
  bool told = false; // one finding for an access is enough
  uintptr_t at = begin;
  for (auto span = spans.lower_bound(begin); at < end; ++span) {
    if (span == spans.end() || span->first > at) {
      const uintptr_t gap =
          span == spans.end() ? end : std::min(end, span->first);
      span = spans.emplace(at, Span{gap, {}, {}}).first;
    }
    Span &of = span->second;
    at = of.end;
    if (isUnknown(of.write) && !told) {
      conflict(of.write, who, access.writes, true, access.bytes);
      told = true;
    }
    if (!access.writes) {
      std::erase_if(of.reads,
                    [&](const Touch &read) { return read.stream == stream; });
      of.reads.push_back(now);
      continue;
    }
    for (const Touch &read : of.reads)
      if (isUnknown(read) && !told) {
        conflict(read, who, true, false, access.bytes);
        told = true;
      }
    of.reads.clear();
    of.write = now;
  }
}

} // namespace sluice::cudadouble
