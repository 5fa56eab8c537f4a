// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/kernel/cpu/detail/f32x16.hpp>

namespace terrace::kernel::cpu::detail {

/// e^x within two units in the last place; 0 below -104, infinity from 89 on, NaN stays NaN, e^0 is
/// exactly 1.
[[nodiscard]] inline f32x16 exponential(f32x16 x) noexcept {
  f32x16 const bounded =
      min(f32x16::all(89.0F), max(f32x16::all(-104.0F), x));        // in this order NaN passes
  f32x16 const n = nearest(bounded * f32x16::all(0x1.715476p+0F));  // 1 / ln 2
  f32x16 r =
      fma(n, f32x16::all(-0x1.62e400p-1F), bounded);  // ln 2, twelve zero bits at the end ...
  r = fma(n, f32x16::all(-0x1.7f7d1cp-20F), r);       // ... and the rest of it
  f32x16 p = f32x16::all(
      1.0F / 5040.0F);  // Taylor series; the next term is below 6e-9 for |r| <= ln(2) / 2
  p = fma(p, r, f32x16::all(1.0F / 720.0F));
  p = fma(p, r, f32x16::all(1.0F / 120.0F));
  p = fma(p, r, f32x16::all(1.0F / 24.0F));
  p = fma(p, r, f32x16::all(1.0F / 6.0F));
  p = fma(p, r, f32x16::all(0.5F));
  p = fma(p, r, f32x16::all(1.0F));
  p = fma(p, r, f32x16::all(1.0F));
  return scale_by_power(p, n);
}

/// The same for one value, with the same bits as any lane.
[[nodiscard]] inline float exponential(float x) noexcept {
  float lanes[16];
  exponential(f32x16::all(x)).store(lanes);
  return lanes[0];
}

/// 1 / (1 + e^-x)
[[nodiscard]] inline f32x16 sigmoid(f32x16 x) noexcept {
  f32x16 const one = f32x16::all(1.0F);
  return one / (one + exponential(f32x16::zero() - x));
}

/// Hyperbolic tangent within a few units in the last place, also near 0; NaN stays NaN.
///
/// tanh(x) = m / (m + 2) with m = e^2x - 1. Where 2^n is 1 the series alone is m, so that small
/// arguments do not cancel.
[[nodiscard]] inline f32x16 hyperbolic_tangent(f32x16 x) noexcept {
  f32x16 const bounded = min(f32x16::all(40.0F), max(f32x16::all(-40.0F), x + x));
  f32x16 const n = nearest(bounded * f32x16::all(0x1.715476p+0F));
  f32x16 r = fma(n, f32x16::all(-0x1.62e400p-1F), bounded);
  r = fma(n, f32x16::all(-0x1.7f7d1cp-20F), r);
  f32x16 p = f32x16::all(1.0F / 5040.0F);
  for (float const term : {1.0F / 720.0F, 1.0F / 120.0F, 1.0F / 24.0F, 1.0F / 6.0F, 0.5F, 1.0F}) {
    p = fma(p, r, f32x16::all(term));
  }
  f32x16 const one = f32x16::all(1.0F);
  f32x16 const m = scale_by_power(p * r, n) + (scale_by_power(one, n) - one);
  return m / (m + (one + one));
}

}  // namespace terrace::kernel::cpu::detail
