// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/error.hpp>
#include <terrace/core/kda_shape.hpp>
#include <terrace/kernel/cpu/detail/kda_panel.hpp>
#include <terrace/kernel/cpu/elementwise.hpp>
#include <terrace/kernel/cpu/norm.hpp>
#include <terrace/kernel/cpu/thread_pool.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>

namespace terrace::kernel::cpu {

/// Throws contract_error for a shape these kernels do not compute.
inline void check_kda(kda_shape const& shape) {
  if (shape.heads == 0 || shape.dim == 0 || shape.dim % 16 != 0 || shape.taps < 2 ||
      shape.taps > 8) {
    throw contract_error{"delta attention of " + std::to_string(shape.heads) + " heads of " +
                         std::to_string(shape.dim) + " with " + std::to_string(shape.taps) +
                         " taps is not computed; heads are multiples of 16 and taps 2 to 8"};
  }
}

/// x[t] = silu(sum over j of taps[c, j] * x[t - (n - 1) + j]) in place, n = shape.taps.
///
/// Shapes: x [tokens, width]; taps [width, n], the last for the current token; history
/// [n - 1, width], the inputs before x, oldest first; afterwards the last n - 1 inputs.
/// A token has the same bits in any company.
inline void short_convolution(thread_pool& pool,
                              kda_shape const& shape,
                              float* x,
                              float const* taps,
                              std::size_t tokens,
                              float* history) {
  using detail::f32x16;
  check_kda(shape);
  std::size_t const n = shape.taps;
  std::size_t const width = shape.width();
  std::size_t const grain = detail::elementwise_grain / (16 * n * std::max<std::size_t>(1, tokens));
  pool.for_range(width / 16, grain, [&](std::size_t begin, std::size_t end) {
    for (std::size_t c = begin * 16; c < end * 16; c += 16) {
      f32x16 tap[8], ring[8];  // the input of token t is ring[t % n]
      for (std::size_t j = 0; j < n; ++j) {
        alignas(64) float lanes[16];
        for (std::size_t i = 0; i < 16; ++i) { lanes[i] = taps[(c + i) * n + j]; }
        tap[j] = f32x16::load(lanes);
      }
      for (std::size_t j = 0; j + 1 < n; ++j) {
        ring[j + 1] = f32x16::load(history + j * width + c);
      }
      for (std::size_t t = 0; t < tokens; ++t) {
        float* const at = x + t * width + c;
        ring[t % n] = f32x16::load(at);
        f32x16 sum = f32x16::zero();
        for (std::size_t j = 0; j < n; ++j) { sum = fma(tap[j], ring[(t + 1 + j) % n], sum); }
        (sum * detail::sigmoid(sum)).store(at);
      }
      for (std::size_t j = 0; j + 1 < n; ++j) {
        ring[(tokens + 1 + j) % n].store(history + j * width + c);
      }
    }
  });
}

/// What one layer reads of each token after the short convolutions. q, k, z and beta are
/// overwritten.
struct kda_inputs {
  float* q;              ///< [tokens, heads, dim]
  float* k;              ///< [tokens, heads, dim]
  float const* v;        ///< [tokens, heads, dim]
  float* z;              ///< [tokens, heads, dim], before dt_bias
  float* beta;           ///< [tokens, heads], before the sigmoid
  float const* rate;     ///< [heads], e^A_log
  float const* dt_bias;  ///< [heads, dim]
};

namespace detail {

/// x = x / |x| * scale
inline void scale_to_unit(float* x, std::size_t dim, float scale) noexcept {
  f32x16 const factor = f32x16::all(scale / std::sqrt(sum_of_squares(x, dim) + 1e-6F));
  for_each_vector(
      dim, x, [&](std::size_t i, std::size_t n) { return f32x16::load_first(x + i, n) * factor; });
}

/// ln(1 + e^x) without overflow; lane by lane, since only Kimi-Linear asks for it.
[[nodiscard]] inline f32x16 softplus(f32x16 x) noexcept {
  alignas(64) float lanes[16];
  x.store(lanes);
  for (float& one : lanes) {
    one = one > 0 ? one + std::log1p(std::exp(-one)) : std::log1p(std::exp(one));
  }
  return f32x16::load(lanes);
}

/// z becomes e^g, what a key channel keeps.
inline void decay_of(kda_shape const& shape, float rate, float const* dt_bias, float* z) noexcept {
  for_each_vector(shape.dim, z, [&](std::size_t i, std::size_t n) {
    f32x16 const s = f32x16::load_first(z + i, n) + f32x16::load_first(dt_bias + i, n);
    if (shape.decay == kda_decay::softplus) {
      return exponential(f32x16::all(-rate) * softplus(s));
    }
    return exponential(f32x16::all(shape.bound) * sigmoid(f32x16::all(rate) * s));
  });
}

}  // namespace detail

/// The delta rule with a decay per channel, as `reference::kda`, in float32.
///
/// Shapes: state [heads, dim of keys, dim of values] in and out; out [tokens, heads, dim].
/// A token has the same bits in any company, so the state does not depend on how a prompt was cut.
/// Cost: the state is read and written once for any number of tokens.
inline void kda(thread_pool& pool,
                kda_shape const& shape,
                kda_inputs const& in,
                std::size_t tokens,
                float* state,
                float* out) {
  check_kda(shape);
  std::size_t const d = shape.dim;
  float const query_scale = 1.0F / std::sqrt(static_cast<float>(d));
  std::size_t const grain = std::max<std::size_t>(1, 2048 / d);
  pool.for_range(tokens * shape.heads, grain, [&](std::size_t begin, std::size_t end) {
    for (std::size_t row = begin; row < end; ++row) {
      std::size_t const head = row % shape.heads;
      detail::scale_to_unit(in.q + row * d, d, query_scale);
      detail::scale_to_unit(in.k + row * d, d, 1.0F);
      detail::decay_of(shape, in.rate[head], in.dt_bias + head * d, in.z + row * d);
      in.beta[row] = 1.0F / (1.0F + detail::exponential(-in.beta[row]));
    }
  });
  std::size_t const wide = d % 32 == 0 ? 32 : 16;
  std::size_t const panels = d / wide;
  pool.for_range(shape.heads * panels, 1, [&](std::size_t begin, std::size_t end) {
    for (std::size_t item = begin; item < end; ++item) {
      std::size_t const head = item / panels;
      std::size_t const column = item % panels * wide;
      detail::kda_head_rows const rows{.q = in.q + head * d,
                                       .k = in.k + head * d,
                                       .v = in.v + head * d,
                                       .keep = in.z + head * d,
                                       .beta = in.beta + head,
                                       .out = out + head * d,
                                       .stride = shape.width(),
                                       .beta_stride = shape.heads};
      float* const s = state + head * d * d + column;
      if (wide == 32) {
        detail::kda_panel<2>(rows, tokens, d, column, s);
      } else {
        detail::kda_panel<1>(rows, tokens, d, column, s);
      }
    }
  });
}

/// y = weight * x / sqrt(mean(x^2) + eps) * sigmoid(gate), rows of `cols` that share the weight. y
/// may be x.
inline void gated_norm(thread_pool& pool,
                       float const* x,
                       float const* weight,
                       float const* gate,
                       float eps,
                       std::size_t rows,
                       std::size_t cols,
                       float* y) {
  using detail::f32x16;
  std::size_t const grain = std::max<std::size_t>(1, detail::elementwise_grain / cols);
  pool.for_range(rows, grain, [&](std::size_t begin, std::size_t end) {
    for (std::size_t row = begin; row < end; ++row) {
      float const* const from = x + row * cols;
      float const mean = detail::sum_of_squares(from, cols) / static_cast<float>(cols);
      f32x16 const factor = f32x16::all(1.0F / std::sqrt(mean + eps));
      detail::for_each_vector(cols, y + row * cols, [&](std::size_t i, std::size_t n) {
        return f32x16::load_first(from + i, n) * factor * f32x16::load_first(weight + i, n) *
               detail::sigmoid(f32x16::load_first(gate + row * cols + i, n));
      });
    }
  });
}

}  // namespace terrace::kernel::cpu
