// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace terrace::kernel::cuda::detail {

/// 2^n for n in [-126, 127].
__device__ __forceinline__ float power_of_two(int n) {
  return __uint_as_float(static_cast<std::uint32_t>(n + 127) << 23U);
}

/// e^x with the bits of kernel/cpu/detail/exponential.hpp, so that routers and exact softmaxes of
/// both backends weigh alike: within two units in the last place; 0 below -104, infinity from 89
/// on, NaN stays NaN, e^0 is exactly 1.
__device__ __forceinline__ float exponential(float x) {
  float const above = x < -104.0F ? -104.0F : x;  // comparisons with NaN are false: it passes
  float const bounded = above > 89.0F ? 89.0F : above;
  float const n = rintf(__fmul_rn(bounded, 0x1.715476p+0F));  // 1 / ln 2
  float r = fmaf(n, -0x1.62e400p-1F, bounded);                // ln 2, twelve zero bits at the end
  r = fmaf(n, -0x1.7f7d1cp-20F, r);                           // ... and the rest of it
  float p = 1.0F / 5040.0F;
  p = fmaf(p, r, 1.0F / 720.0F);
  p = fmaf(p, r, 1.0F / 120.0F);
  p = fmaf(p, r, 1.0F / 24.0F);
  p = fmaf(p, r, 1.0F / 6.0F);
  p = fmaf(p, r, 0.5F);
  p = fmaf(p, r, 1.0F);
  p = fmaf(p, r, 1.0F);
  // In two steps, of which the first is exact: 2^n alone may leave the range of float32.
  int const whole = n == n ? static_cast<int>(n) : 0;
  int const half = whole / 2;
  return __fmul_rn(__fmul_rn(p, power_of_two(half)), power_of_two(whole - half));
}

/// 1 / (1 + e^-x), the CPU's bits too.
__device__ __forceinline__ float sigmoid(float x) { return 1.0F / (1.0F + exponential(-x)); }

/// tanh with the CPU's bits, within a few units in the last place, also near 0.
///
/// tanh(x) = m / (m + 2) with m = e^2x - 1. Where 2^n is 1 the series alone is m, so that small
/// arguments do not cancel.
__device__ __forceinline__ float hyperbolic_tangent(float x) {
  float const twice = x + x;
  float const above = twice < -40.0F ? -40.0F : twice;
  float const bounded = above > 40.0F ? 40.0F : above;
  float const n = rintf(__fmul_rn(bounded, 0x1.715476p+0F));
  float r = fmaf(n, -0x1.62e400p-1F, bounded);
  r = fmaf(n, -0x1.7f7d1cp-20F, r);
  float p = 1.0F / 5040.0F;
  p = fmaf(p, r, 1.0F / 720.0F);
  p = fmaf(p, r, 1.0F / 120.0F);
  p = fmaf(p, r, 1.0F / 24.0F);
  p = fmaf(p, r, 1.0F / 6.0F);
  p = fmaf(p, r, 0.5F);
  p = fmaf(p, r, 1.0F);
  float const scale = power_of_two(n == n ? static_cast<int>(n) : 0);
  float const m = __fmul_rn(__fmul_rn(p, r), scale) + (scale - 1.0F);
  return m / (m + 2.0F);
}

}  // namespace terrace::kernel::cuda::detail
