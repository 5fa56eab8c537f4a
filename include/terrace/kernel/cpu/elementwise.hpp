// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/gated_activation.hpp>
#include <terrace/kernel/cpu/detail/exponential.hpp>
#include <terrace/kernel/cpu/thread_pool.hpp>

#include <algorithm>
#include <cstddef>

namespace terrace::kernel::cpu {

namespace detail {

/// Elements a thread must have for a second one to be worth waking.
inline constexpr std::size_t elementwise_grain = 16384;

/// y[i] = f(i, n): f loads up to n (at most 16) values at i and returns a vector.
template <class F>
void for_each_vector(std::size_t n, float* y, F&& f) noexcept {
  std::size_t i = 0;
  for (; i + 16 <= n; i += 16) { f(i, std::size_t{16}).store(y + i); }
  if (i < n) { f(i, n - i).store_first(y + i, n - i); }
}

/// y = silu(gate) * up for n values.
inline void swiglu_values(float const* gate, float const* up, std::size_t n, float* y) noexcept {
  for_each_vector(n, y, [&](std::size_t i, std::size_t count) {
    f32x16 const g = f32x16::load_first(gate + i, count);
    f32x16 const one = f32x16::all(1.0F);
    return g / (one + exponential(f32x16::zero() - g)) * f32x16::load_first(up + i, count);
  });
}

inline void situ_values(gated_activation const& how,
                        float const* gate,
                        float const* up,
                        std::size_t n,
                        float* y) noexcept {
  f32x16 const beta = f32x16::all(how.beta);
  f32x16 const linear = f32x16::all(how.linear_beta);
  for_each_vector(n, y, [&](std::size_t i, std::size_t count) {
    f32x16 const g = f32x16::load_first(gate + i, count);
    f32x16 const u = f32x16::load_first(up + i, count);
    return beta * hyperbolic_tangent(g / beta) * sigmoid(g) *
           (linear * hyperbolic_tangent(u / linear));
  });
}

inline void activate_values(gated_activation const& how,
                            float const* gate,
                            float const* up,
                            std::size_t n,
                            float* y) noexcept {
  if (how.type == gated_activation::kind::situ) {
    situ_values(how, gate, up, n, y);
  } else {
    swiglu_values(gate, up, n, y);
  }
}

}  // namespace detail

/// y[i] = the activation of gate[i] and up[i]. y may be gate or up.
inline void activate(thread_pool& pool,
                     gated_activation const& how,
                     float const* gate,
                     float const* up,
                     std::size_t n,
                     float* y) {
  pool.for_range(n, detail::elementwise_grain, [&](std::size_t begin, std::size_t end) {
    detail::activate_values(how, gate + begin, up + begin, end - begin, y + begin);
  });
}

/// y[i] *= sigmoid(gate[i])
inline void multiply_sigmoid(thread_pool& pool, float const* gate, std::size_t n, float* y) {
  pool.for_range(n, detail::elementwise_grain, [&](std::size_t begin, std::size_t end) {
    detail::for_each_vector(end - begin, y + begin, [&](std::size_t i, std::size_t count) {
      using detail::f32x16;
      return f32x16::load_first(y + begin + i, count) *
             detail::sigmoid(f32x16::load_first(gate + begin + i, count));
    });
  });
}

/// y[i] = silu(gate[i]) * up[i], silu(x) = x / (1 + e^-x). y may be gate or up.
inline void swiglu(thread_pool& pool, float const* gate, float const* up, std::size_t n, float* y) {
  pool.for_range(n, detail::elementwise_grain, [&](std::size_t begin, std::size_t end) {
    detail::swiglu_values(gate + begin, up + begin, end - begin, y + begin);
  });
}

/// y[i] += x[i]
inline void add(thread_pool& pool, float const* x, std::size_t n, float* y) {
  pool.for_range(n, detail::elementwise_grain, [&](std::size_t begin, std::size_t end) {
    detail::for_each_vector(end - begin, y + begin, [&](std::size_t i, std::size_t count) {
      using detail::f32x16;
      return f32x16::load_first(y + begin + i, count) + f32x16::load_first(x + begin + i, count);
    });
  });
}

/// y[i] = fma(weight, x[i], y[i]); summing experts in ascending order of slot keeps results
/// independent of arrival.
inline void add_scaled(thread_pool& pool, float weight, float const* x, std::size_t n, float* y) {
  pool.for_range(n, detail::elementwise_grain, [&](std::size_t begin, std::size_t end) {
    detail::for_each_vector(end - begin, y + begin, [&](std::size_t i, std::size_t count) {
      using detail::f32x16;
      return fma(f32x16::all(weight),
                 f32x16::load_first(x + begin + i, count),
                 f32x16::load_first(y + begin + i, count));
    });
  });
}

}  // namespace terrace::kernel::cpu
