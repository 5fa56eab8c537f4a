// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/kernel/cpu/detail/exponential.hpp>
#include <terrace/kernel/cpu/elementwise.hpp>
#include <terrace/kernel/cpu/norm.hpp>
#include <terrace/kernel/cpu/thread_pool.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>

namespace terrace::kernel::cpu {

namespace detail {

[[nodiscard]] inline float dot(float const* a, float const* b, std::size_t n) noexcept {
  f32x16 sum[2] = {f32x16::zero(), f32x16::zero()};
  for (std::size_t i = 0, k = 0; i < n; i += 16, ++k) {
    std::size_t const count = std::min<std::size_t>(16, n - i);
    sum[k % 2] =
        fma(f32x16::load_first(a + i, count), f32x16::load_first(b + i, count), sum[k % 2]);
  }
  return (sum[0] + sum[1]).sum();
}

}  // namespace detail

/// y[t] = sum over candidates of softmax(score) * candidate, the score of a candidate v being
/// dot(v / sqrt(mean(v^2) + eps), weight).
///
/// Shapes: each candidate [tokens, cols]; weight [cols]; shares [tokens, candidates], the softmax;
/// y [tokens, cols], none of the candidates.
inline void mix_bank(thread_pool& pool,
                     std::span<float const* const> candidates,
                     float const* weight,
                     float eps,
                     std::size_t tokens,
                     std::size_t cols,
                     float* shares,
                     float* y) {
  using detail::f32x16;
  std::size_t const count = candidates.size();
  pool.for_range(tokens, 1, [&](std::size_t begin, std::size_t end) {
    for (std::size_t t = begin; t < end; ++t) {
      float* const share = shares + t * count;
      for (std::size_t n = 0; n < count; ++n) {
        float const* const v = candidates[n] + t * cols;
        float const mean = detail::sum_of_squares(v, cols) / static_cast<float>(cols);
        share[n] = detail::dot(v, weight, cols) / std::sqrt(mean + eps);
      }
      float const largest = *std::max_element(share, share + count);
      float total = 0;
      for (std::size_t n = 0; n < count; ++n) {
        total += share[n] = detail::exponential(share[n] - largest);
      }
      for (std::size_t n = 0; n < count; ++n) { share[n] /= total; }
      detail::for_each_vector(cols, y + t * cols, [&](std::size_t i, std::size_t some) {
        f32x16 sum = f32x16::zero();
        for (std::size_t n = 0; n < count; ++n) {
          sum = fma(
              f32x16::all(share[n]), f32x16::load_first(candidates[n] + t * cols + i, some), sum);
        }
        return sum;
      });
    }
  });
}

}  // namespace terrace::kernel::cpu
