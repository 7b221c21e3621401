//===- runtime/modules/gpt/BFloat16.h - Numbers of 16 bits ----------------===//
//
// Compiled for the CPU and for GPUs alike.
//
//===----------------------------------------------------------------------===//
#ifndef SLUICE_RUNTIME_MODULES_GPT_BFLOAT16_H
#define SLUICE_RUNTIME_MODULES_GPT_BFLOAT16_H

#include <cstdint>
#include <cstring>

#ifdef __CUDACC__
#define SLUICE_HOST_DEVICE __host__ __device__
#else
#define SLUICE_HOST_DEVICE
#endif

namespace sluice::gpt {

/// The upper half of a 32-bit float: its range, and 8 bits of precision, so a
/// relative error of at most 2^-9 by rounding. It is for storing; what is
/// computed is computed in float.
struct BFloat16 {
  uint16_t bits;

  BFloat16() = default;
  /// The nearest, of two the even one. What is no number stays none.
  SLUICE_HOST_DEVICE explicit BFloat16(float value) {
    uint32_t all;
    memcpy(&all, &value, sizeof(all));
    const bool isNumber = (all & 0x7fffffffu) <= 0x7f800000u;
    bits = static_cast<uint16_t>(
        (isNumber ? all + 0x7fffu + (all >> 16 & 1) : all | 0x400000u) >> 16);
  }
  SLUICE_HOST_DEVICE operator float() const {
    const uint32_t all = static_cast<uint32_t>(bits) << 16;
    float value;
    memcpy(&value, &all, sizeof(value));
    return value;
  }
};

/// What gradients are summed in, and what an optimizer keeps, for parameters of
/// each type.
template <typename Real> struct GradientType { using Type = Real; };
template <> struct GradientType<BFloat16> { using Type = float; };
template <typename Real> using GradientOf = typename GradientType<Real>::Type;

} // namespace sluice::gpt

#endif // SLUICE_RUNTIME_MODULES_GPT_BFLOAT16_H
