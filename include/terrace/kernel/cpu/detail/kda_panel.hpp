// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/kernel/cpu/detail/exponential.hpp>
#include <terrace/kernel/cpu/detail/f32x16.hpp>

#include <cstddef>

namespace terrace::kernel::cpu::detail {

/// Per token, what all columns of one head's state share.
struct kda_head_rows {
  float const* q;  ///< unit length over sqrt(dim)
  float const* k;  ///< unit length
  float const* v;
  float const* keep;  ///< e^g
  float const* beta;  ///< after the sigmoid
  float* out;
  std::size_t stride;       ///< floats from a token to the next, of all but beta
  std::size_t beta_stride;  ///< the same of beta
};

/// The delta rule on 16 * N columns of one head's state, token after token. Columns are independent
/// of one another, and a panel of them stays in the first-level cache however many tokens follow.
///
/// `s` points at the first column of row 0 and `column` numbers it; rows are `dim` floats apart.
template <std::size_t N>
void kda_panel(
    kda_head_rows const& rows, std::size_t tokens, std::size_t dim, std::size_t column, float* s) {
  for (std::size_t t = 0; t < tokens; ++t) {
    float const* const q = rows.q + t * rows.stride;
    float const* const k = rows.k + t * rows.stride;
    float const* const keep = rows.keep + t * rows.stride;
    f32x16 sum[2][N];
    for (std::size_t n = 0; n < N; ++n) { sum[0][n] = sum[1][n] = f32x16::zero(); }
    for (std::size_t pair = 0; pair < dim; pair += 2) {
      for (std::size_t odd = 0; odd < 2; ++odd) {
        std::size_t const i = pair + odd;
        f32x16 const factor = f32x16::all(keep[i]);
        f32x16 const key = f32x16::all(k[i]);
        for (std::size_t n = 0; n < N; ++n) {
          float* const at = s + i * dim + 16 * n;
          f32x16 const kept = f32x16::load(at) * factor;
          kept.store(at);
          sum[odd][n] = fma(kept, key, sum[odd][n]);
        }
      }
    }
    f32x16 u[N];
    f32x16 const beta = f32x16::all(rows.beta[t * rows.beta_stride]);
    for (std::size_t n = 0; n < N; ++n) {
      f32x16 const v = f32x16::load(rows.v + t * rows.stride + column + 16 * n);
      u[n] = beta * (v - (sum[0][n] + sum[1][n]));
      sum[0][n] = sum[1][n] = f32x16::zero();
    }
    for (std::size_t pair = 0; pair < dim; pair += 2) {
      for (std::size_t odd = 0; odd < 2; ++odd) {
        std::size_t const i = pair + odd;
        f32x16 const key = f32x16::all(k[i]);
        f32x16 const query = f32x16::all(q[i]);
        for (std::size_t n = 0; n < N; ++n) {
          float* const at = s + i * dim + 16 * n;
          f32x16 const now = fma(key, u[n], f32x16::load(at));
          now.store(at);
          sum[odd][n] = fma(now, query, sum[odd][n]);
        }
      }
    }
    for (std::size_t n = 0; n < N; ++n) {
      (sum[0][n] + sum[1][n]).store(rows.out + t * rows.stride + column + 16 * n);
    }
  }
}

}  // namespace terrace::kernel::cpu::detail
