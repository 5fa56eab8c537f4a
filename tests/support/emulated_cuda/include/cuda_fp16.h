// SPDX-License-Identifier: Apache-2.0
#pragma once

// 16-bit floats of the emulated runtime: arithmetic happens in float32 and rounds once, as on the
// device.

#include <cuda_runtime.h>

#include <emulated_cuda/small_float.hpp>

#include <bit>
#include <cstdint>

namespace emulated_cuda {
struct half_coding {
  static std::uint16_t encode(float x) {
    return std::bit_cast<std::uint16_t>(static_cast<_Float16>(x));
  }
  static std::uint16_t encode(double x) {
    return std::bit_cast<std::uint16_t>(static_cast<_Float16>(x));
  }
  static float decode(std::uint16_t bits) {
    return static_cast<float>(std::bit_cast<_Float16>(bits));
  }
};
}  // namespace emulated_cuda

using __half = emulated_cuda::small_float<emulated_cuda::half_coding>;
using half = __half;
using __half2 = emulated_cuda::small_float_pair<__half>;
using half2 = __half2;

inline __half __float2half(float x) { return __half{x}; }
inline __half __float2half_rn(float x) { return __half{x}; }
inline float __half2float(__half x) { return x.value(); }
inline unsigned short __half_as_ushort(__half x) { return x.bits; }
inline __half __ushort_as_half(unsigned short x) { return __half::from_bits(x); }
inline __half2 __float2half2_rn(float x) { return {__half{x}, __half{x}}; }
inline __half2 __floats2half2_rn(float x, float y) { return {__half{x}, __half{y}}; }
inline __half2 __float22half2_rn(float2 v) { return {__half{v.x}, __half{v.y}}; }
inline float2 __half22float2(__half2 v) { return {v.x.value(), v.y.value()}; }
inline __half2 __halves2half2(__half x, __half y) { return {x, y}; }
inline __half2 make_half2(__half x, __half y) { return {x, y}; }
inline __half2 __half2half2(__half x) { return {x, x}; }
inline __half __low2half(__half2 v) { return v.x; }
inline __half __high2half(__half2 v) { return v.y; }
inline float __low2float(__half2 v) { return v.x.value(); }
inline float __high2float(__half2 v) { return v.y.value(); }
