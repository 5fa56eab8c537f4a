// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/kernel/cpu/detail/f32x16.hpp>
#include <terrace/kernel/cpu/elementwise.hpp>
#include <terrace/kernel/cpu/thread_pool.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace terrace::kernel::cpu {

namespace detail {

inline float sum_of_squares(float const* x, std::size_t n) noexcept {
  f32x16 sum[4] = {f32x16::zero(), f32x16::zero(), f32x16::zero(), f32x16::zero()};
  std::size_t i = 0;
  for (; i + 64 <= n; i += 64) {
    for (std::size_t k = 0; k < 4; ++k) {
      f32x16 const v = f32x16::load(x + i + 16 * k);
      sum[k] = fma(v, v, sum[k]);
    }
  }
  for (std::size_t k = 0; i < n; i += 16, ++k) {
    f32x16 const v = f32x16::load_first(x + i, std::min<std::size_t>(16, n - i));
    sum[k] = fma(v, v, sum[k]);
  }
  return ((sum[0] + sum[1]) + (sum[2] + sum[3])).sum();
}

}  // namespace detail

/// y = weight * x / sqrt(mean(x^2) + eps), row by row, in float32.
///
/// Shapes: x, y [tokens, cols], weight [cols] or null for ones. y may be x.
inline void rms_norm(thread_pool& pool,
                     float const* x,
                     float const* weight,
                     float eps,
                     std::size_t tokens,
                     std::size_t cols,
                     float* y) {
  using detail::f32x16;
  std::size_t const grain =
      std::max<std::size_t>(1, detail::elementwise_grain / std::max<std::size_t>(1, cols));
  pool.for_range(tokens, grain, [&](std::size_t begin, std::size_t end) {
    for (std::size_t t = begin; t < end; ++t) {
      float const* const from = x + t * cols;
      float const mean = detail::sum_of_squares(from, cols) / static_cast<float>(cols);
      f32x16 const factor = f32x16::all(1.0F / std::sqrt(mean + eps));
      detail::for_each_vector(cols, y + t * cols, [&](std::size_t i, std::size_t count) {
        f32x16 const scaled = f32x16::load_first(from + i, count) * factor;
        return weight == nullptr ? scaled : scaled * f32x16::load_first(weight + i, count);
      });
    }
  });
}

}  // namespace terrace::kernel::cpu
