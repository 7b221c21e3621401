//===- tests/cuda/double/Memory.h - Allocations and who touched them ------===//
#ifndef SLUICE_TESTS_CUDA_DOUBLE_MEMORY_H
#define SLUICE_TESTS_CUDA_DOUBLE_MEMORY_H

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace sluice::cudadouble {

class Engine;

/// How far each stream is known to be.
class VectorClock {
public:
  uint32_t operator[](uint32_t stream) const {
    return stream < ticks.size() ? ticks[stream] : 0;
  }
  void advance(uint32_t stream) {
    if (stream >= ticks.size())
      ticks.resize(stream + 1);
    ++ticks[stream];
  }
  void join(const VectorClock &other) {
    if (other.ticks.size() > ticks.size())
      ticks.resize(other.ticks.size());
    for (size_t i = 0; i < other.ticks.size(); ++i)
      ticks[i] = std::max(ticks[i], other.ticks[i]);
  }
  void clear() { ticks.clear(); }

private:
  std::vector<uint32_t> ticks;
};

struct Access {
  const void *data;
  size_t bytes;
  bool writes;
};

/// What the devices and the host have given out. Device memory is poisoned:
/// every byte 0xff, which makes numbers that are none.
class Memory {
public:
  static constexpr int kHost = -1;

  explicit Memory(Engine &of) : engine(of) {}
  /// Null where `device` has not so much left.
  void *allocate(int device, size_t bytes);
  bool free(void *data, bool onHost);
  size_t used(int device) const;
  /// Whether a piece of memory that was given out holds it.
  bool holds(const void *data, size_t bytes) const;
  size_t count() const { return blocks.size(); }
  void clear();

  /// Notes an access of `stream`, which knows `clock`; two that touch the same
  /// byte, one of them writing, must know of each other.
  void touch(const Access &access, uint32_t stream, const VectorClock &clock,
             const std::string &who);
  static void poison(void *data, size_t bytes);

private:
  struct Block {
    size_t bytes;
    int device;
  };
  struct Touch {
    uint32_t stream = 0;
    uint32_t tick = 0; ///< 0: nobody
    uint32_t who = 0;  ///< in names
  };
  struct Span {
    uintptr_t end;
    Touch write;
    std::vector<Touch> reads;
  };
  using Spans = std::map<uintptr_t, Span>;
  Spans::iterator splitAt(uintptr_t at);
  void conflict(const Touch &earlier, const std::string &who, bool writes,
                bool wrote, size_t bytes);
  uint32_t nameOf(const std::string &who);

  Engine &engine;
  std::map<uintptr_t, Block> blocks;
  Spans spans;
  std::vector<std::string> names;
  std::map<std::string, uint32_t> numbers;
};

} // namespace sluice::cudadouble

#endif // SLUICE_TESTS_CUDA_DOUBLE_MEMORY_H
