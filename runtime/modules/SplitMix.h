//===- runtime/modules/SplitMix.h - A mixer of bits ----------------------===//
#ifndef SLUICE_RUNTIME_MODULES_SPLITMIX_H
#define SLUICE_RUNTIME_MODULES_SPLITMIX_H

#include <cstdint>

namespace sluice {

/// The finisher of SplitMix64 (Steele, Lea and Flood, "Fast splittable
/// pseudorandom number generators", 2014): a bijection that mixes all bits.
constexpr uint64_t mixBits(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

/// The step of its counter: 2^64 over the golden ratio, made odd.
inline constexpr uint64_t kSplitMixStep = 0x9e3779b97f4a7c15u;

} // namespace sluice

#endif // SLUICE_RUNTIME_MODULES_SPLITMIX_H
