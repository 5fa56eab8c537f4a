// SPDX-License-Identifier: Apache-2.0
#pragma once

// bfloat16 of the emulated runtime: arithmetic happens in float32 and rounds once, as on the
// device.

#include <cuda_runtime.h>

#include <emulated_cuda/small_float.hpp>

#include <bit>
#include <cmath>
#include <cstdint>

namespace emulated_cuda {
struct bfloat16_coding {
  static std::uint16_t encode(float x) {
    auto const bits = std::bit_cast<std::uint32_t>(x);
    if (std::isnan(x)) { return 0x7FFF; }
    return static_cast<std::uint16_t>((bits + 0x7FFFU + (bits >> 16 & 1U)) >> 16);
  }
  /// Rounds to odd on the way through float32, so that the second rounding decides alone.
  static std::uint16_t encode(double x) {
    auto near = static_cast<float>(x);
    if (static_cast<double>(near) != x && std::isfinite(near)) {
      auto bits = std::bit_cast<std::uint32_t>(near);
      if (std::abs(static_cast<double>(near)) > std::abs(x)) { --bits; }
      near = std::bit_cast<float>(bits | 1U);
    }
    return encode(near);
  }
  static float decode(std::uint16_t bits) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
  }
};
}  // namespace emulated_cuda

using __nv_bfloat16 = emulated_cuda::small_float<emulated_cuda::bfloat16_coding>;
using nv_bfloat16 = __nv_bfloat16;
using __nv_bfloat162 = emulated_cuda::small_float_pair<__nv_bfloat16>;
using nv_bfloat162 = __nv_bfloat162;

inline __nv_bfloat16 __float2bfloat16(float x) { return __nv_bfloat16{x}; }
inline __nv_bfloat16 __float2bfloat16_rn(float x) { return __nv_bfloat16{x}; }
inline float __bfloat162float(__nv_bfloat16 x) { return x.value(); }
inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 x) { return x.bits; }
inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short x) { return __nv_bfloat16::from_bits(x); }
inline __nv_bfloat162 __float2bfloat162_rn(float x) { return {__nv_bfloat16{x}, __nv_bfloat16{x}}; }
inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y) {
  return {__nv_bfloat16{x}, __nv_bfloat16{y}};
}
inline __nv_bfloat162 __float22bfloat162_rn(float2 v) {
  return {__nv_bfloat16{v.x}, __nv_bfloat16{v.y}};
}
inline float2 __bfloat1622float2(__nv_bfloat162 v) { return {v.x.value(), v.y.value()}; }
inline __nv_bfloat162 __halves2bfloat162(__nv_bfloat16 x, __nv_bfloat16 y) { return {x, y}; }
inline __nv_bfloat162 make_bfloat162(__nv_bfloat16 x, __nv_bfloat16 y) { return {x, y}; }
inline __nv_bfloat16 __low2bfloat16(__nv_bfloat162 v) { return v.x; }
inline __nv_bfloat16 __high2bfloat16(__nv_bfloat162 v) { return v.y; }
inline float __low2float(__nv_bfloat162 v) { return v.x.value(); }
inline float __high2float(__nv_bfloat162 v) { return v.y.value(); }
