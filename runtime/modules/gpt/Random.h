//===- runtime/modules/gpt/Random.h - Random numbers by counter ----------===//
//
// A number is a hash of what it is for, so that it does not depend on which
// rank asks, nor on what was asked before.
//
//===----------------------------------------------------------------------===//
#ifndef SLUICE_RUNTIME_MODULES_GPT_RANDOM_H
#define SLUICE_RUNTIME_MODULES_GPT_RANDOM_H

#include "runtime/modules/SplitMix.h"

#include <cstdint>

namespace sluice::gpt {

/// What a random number is for: uses never share numbers.
enum class Use : uint64_t { Weights = 1, Samples = 2 };

/// `hash` extended by one more coordinate.
constexpr uint64_t extendHash(uint64_t hash, uint64_t coordinate) {
  return mixBits(hash + kSplitMixStep + mixBits(coordinate + kSplitMixStep));
}

constexpr uint64_t startHash(Use use, uint64_t seed) {
  return extendHash(extendHash(0, static_cast<uint64_t>(use)), seed);
}

/// A bell-shaped number with mean 0 and variance 1 from 64 uniform bits: the
/// sum of four 16-bit ones, scaled (the sum of n uniform integers below N has
/// variance n(N²-1)/12). Integer up to the last product, so the same on every
/// machine; never beyond 3.47.
constexpr double bellShaped(uint64_t bits) {
  constexpr uint64_t kMask = 0xffff;
  int64_t sum = static_cast<int64_t>((bits & kMask) + (bits >> 16 & kMask) +
                                     (bits >> 32 & kMask) + (bits >> 48));
  constexpr double kInverseDeviation = 2.6428997921303014e-05;
  return static_cast<double>(2 * sum - 4 * 65535) / 2 * kInverseDeviation;
}

} // namespace sluice::gpt

#endif // SLUICE_RUNTIME_MODULES_GPT_RANDOM_H
