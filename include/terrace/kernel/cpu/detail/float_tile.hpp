// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/kernel/cpu/detail/f32x16.hpp>
#include <terrace/kernel/cpu/detail/int8_tile.hpp>  // tile_rows

#include <cstddef>
#include <cstdint>

/// Products of four rows of weights with float32 vectors, in the one order that all tilings share:
/// lane i % 16 of one vector of partial sums takes element i, ascending; `f32x16::sum` adds the
/// lanes.
namespace terrace::kernel::cpu::detail {

/// How sixteen weights come to a register; `bytes` is the size of one.
struct load_f32 {
  static constexpr std::size_t bytes = 4;
  static f32x16 load(std::byte const* p) noexcept { return f32x16::load(p); }
};
struct load_f16 {
  static constexpr std::size_t bytes = 2;
  static f32x16 load(std::byte const* p) noexcept { return f32x16::load_half(p); }
};
struct load_bf16 {
  static constexpr std::size_t bytes = 2;
  static f32x16 load(std::byte const* p) noexcept { return f32x16::load_bfloat(p); }
};

/// y[t * y_stride + r] = sum_c w[r][c] x[t][c] for four rows and `Tokens` vectors; rows past `rows`
/// are not written.
template <class Load, std::size_t Tokens>
[[gnu::noinline]] void multiply_tile(std::byte const* const (&w)[tile_rows],
                                     float const* const* x,
                                     std::size_t cols,
                                     std::size_t rows,
                                     float* y,
                                     std::size_t y_stride) noexcept {
  f32x16 sum[tile_rows][Tokens];
#pragma GCC unroll 32
  for (std::size_t i = 0; i < tile_rows * Tokens; ++i) {
    sum[i / Tokens][i % Tokens] = f32x16::zero();
  }
  std::size_t const whole = cols / 16 * 16;
  for (std::size_t c = 0; c < whole; c += 16) {
    f32x16 row[tile_rows];
#pragma GCC unroll 8
    for (std::size_t r = 0; r < tile_rows; ++r) { row[r] = Load::load(w[r] + c * Load::bytes); }
#pragma GCC unroll 8
    for (std::size_t t = 0; t < Tokens; ++t) {
      f32x16 const other = f32x16::load(x[t] + c);
#pragma GCC unroll 8
      for (std::size_t r = 0; r < tile_rows; ++r) { sum[r][t] = fma(row[r], other, sum[r][t]); }
    }
  }
  if (whole != cols) {
    for (std::size_t r = 0; r < tile_rows; ++r) {
      std::byte padded[16 * Load::bytes] = {};
      std::memcpy(padded, w[r] + whole * Load::bytes, (cols - whole) * Load::bytes);
      f32x16 const row = Load::load(padded);
      for (std::size_t t = 0; t < Tokens; ++t) {
        sum[r][t] = fma(row, f32x16::load_first(x[t] + whole, cols - whole), sum[r][t]);
      }
    }
  }
#pragma GCC unroll 8
  for (std::size_t t = 0; t < Tokens; ++t) {
#pragma GCC unroll 8
    for (std::size_t r = 0; r < tile_rows; ++r) {
      if (r < rows) { y[t * y_stride + r] = sum[r][t].sum(); }
    }
  }
}

}  // namespace terrace::kernel::cpu::detail
