// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/kernel/cpu/detail/int8_rows.hpp>
#include <terrace/kernel/cpu/detail/int8_tile.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

namespace terrace::kernel::cpu::detail {

/// Vectors in a panel: one lane each.
inline constexpr std::size_t panel_tokens = 16;
/// Vectors that are left over after whole panels and cheaper one by one than in a panel of their
/// own.
inline constexpr std::size_t most_single_tokens = 4;

/// How many panels `tokens` vectors are packed into; the last may be partly empty, or some vectors
/// may be left to be multiplied one by one.
[[nodiscard]] constexpr std::size_t panels_for([[maybe_unused]] std::size_t tokens) noexcept {
#if defined(TERRACE_KERNEL_VNNI)
  return tokens / panel_tokens + (tokens % panel_tokens > most_single_tokens ? 1 : 0);
#else
  return 0;
#endif
}

/// Vectors in 8-bit form, sixteen side by side, so that a lane of a register is a vector.
///
/// Shapes: codes [panels, blocks, 8, 16 vectors, 4]; the others [panels, blocks, 16]; zeros where a
///         vector is missing.
struct int8_panels {
  static constexpr std::size_t block_bytes = block_cols * panel_tokens;

  std::size_t blocks = 0;
  std::vector<std::int8_t> codes;
  std::vector<float> scale;
  std::vector<float> sum;
  std::vector<std::int32_t> code_sum;
  std::vector<std::int32_t> low_sum;

  void resize(std::size_t panels, std::size_t new_blocks) {
    blocks = new_blocks;
    std::size_t const size = panels * blocks * panel_tokens;
    codes.resize(size * block_cols);
    scale.resize(size);
    sum.resize(size);
    code_sum.resize(size);
    low_sum.resize(size);
  }

  /// Fills panel `panel` with `count` vectors of `rows`, whose numbers `token_at(i)` gives.
  template <class TokenAt>
  void pack(std::size_t panel,
            int8_rows const& rows,
            std::size_t count,
            TokenAt&& token_at) noexcept {
    for (std::size_t i = 0; i < panel_tokens; ++i) {
      if (i >= count) {
        clear_lane(panel, i);
        continue;
      }
      int8_row const from = row_of(rows, token_at(i), 0);
      for (std::size_t b = 0; b < blocks; ++b) {
        std::size_t const at = panel * blocks + b;
        std::int8_t* const to = codes.data() + at * block_bytes + 4 * i;
        for (std::size_t k = 0; k < block_cols; k += 4) {
          std::memcpy(to + k * panel_tokens, from.codes + b * block_cols + k, 4);
        }
        std::size_t const lane = at * panel_tokens + i;
        scale[lane] = from.scale[b];
        sum[lane] = from.sum[b];
        code_sum[lane] = from.code_sum[b];
        low_sum[lane] = from.low_sum[b];
      }
    }
  }

 private:
  void clear_lane(std::size_t panel, std::size_t i) noexcept {
    for (std::size_t at = panel * blocks; at < (panel + 1) * blocks; ++at) {
      std::int8_t* const to = codes.data() + at * block_bytes + 4 * i;
      for (std::size_t k = 0; k < block_cols; k += 4) { std::memset(to + k * panel_tokens, 0, 4); }
      std::size_t const lane = at * panel_tokens + i;
      scale[lane] = sum[lane] = 0;
      code_sum[lane] = low_sum[lane] = 0;
    }
  }
};

#if defined(TERRACE_KERNEL_VNNI)

/// Four rows times `Panels` panels, in the order that int8_tile.hpp states: blocks of one number
/// modulo 4 after the other, so that partial sums stay in registers.
///
/// Shapes: w [4 rows, blocks]; panels first, first + 1, ...; y[token * y_stride + row] for `tokens`
///         tokens, counted from the first panel's, and `rows` rows.
template <class Unpacker, std::size_t Panels>
struct panel_tile {
  unpacked_rows const& w;
  int8_panels const& x;
  std::size_t first;

  __m512 total[tile_rows][Panels];

  [[gnu::always_inline]] [[nodiscard]] std::size_t lane(std::size_t panel,
                                                        std::size_t b) const noexcept {
    return ((first + panel) * x.blocks + b) * panel_tokens;
  }

  /// Adds one block, or one half of it, to `sum`.
  template <std::size_t Begin, std::size_t End>
  [[gnu::always_inline]] void add(std::size_t b,
                                  __m512i const (&offset)[Panels],
                                  float const* factor,
                                  __m512 (&sum)[tile_rows][Panels]) const noexcept {
    __m512i isum[tile_rows][Panels];
#pragma GCC unroll 16
    for (std::size_t i = 0; i < tile_rows * Panels; ++i) {
      isum[i / Panels][i % Panels] = offset[i % Panels];
    }
    std::int8_t const* const codes = x.codes.data();
#pragma GCC unroll 8
    for (std::size_t k = Begin; k < End; ++k) {
      __m512i other[Panels];
#pragma GCC unroll 4
      for (std::size_t p = 0; p < Panels; ++p) {
        other[p] = _mm512_loadu_si512(codes + lane(p, b) * block_cols + k * 64);
      }
#pragma GCC unroll 4
      for (std::size_t r = 0; r < tile_rows; ++r) {
        std::int32_t four = 0;
        std::memcpy(&four, w.codes + (r * w.pitch + b) * block_cols + 4 * k, 4);
        __m512i const code = _mm512_set1_epi32(four);
#pragma GCC unroll 4
        for (std::size_t p = 0; p < Panels; ++p) {
          isum[r][p] = _mm512_dpbusd_epi32(isum[r][p], code, other[p]);
        }
      }
    }
#pragma GCC unroll 4
    for (std::size_t p = 0; p < Panels; ++p) {
      __m512 const scale = _mm512_loadu_ps(x.scale.data() + lane(p, b));
#pragma GCC unroll 4
      for (std::size_t r = 0; r < tile_rows; ++r) {
        __m512 const both = _mm512_mul_ps(_mm512_set1_ps(factor[r * w.pitch + b]), scale);
        sum[r][p] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(isum[r][p]), both, sum[r][p]);
      }
    }
  }

  [[gnu::always_inline]] static __m512i minus_offset(std::int32_t const* code_sum) noexcept {
    if constexpr (Unpacker::offset_shift < 0) {
      return _mm512_setzero_si512();
    } else {
      return _mm512_sub_epi32(
          _mm512_setzero_si512(),
          _mm512_slli_epi32(_mm512_loadu_si512(code_sum), Unpacker::offset_shift));
    }
  }

  [[gnu::always_inline]] void add_block(std::size_t b,
                                        __m512 (&sum)[tile_rows][Panels]) const noexcept {
    __m512i offset[Panels];
#pragma GCC unroll 4
    for (std::size_t p = 0; p < Panels; ++p) {
      offset[p] = minus_offset(x.code_sum.data() + lane(p, b));
    }
    if constexpr (Unpacker::halves) {
      __m512i low[Panels];
#pragma GCC unroll 4
      for (std::size_t p = 0; p < Panels; ++p) {
        low[p] = minus_offset(x.low_sum.data() + lane(p, b));
        offset[p] = _mm512_sub_epi32(offset[p], low[p]);
      }
      add<0, 4>(b, low, w.scale, sum);
      add<4, 8>(b, offset, w.high_scale, sum);
    } else {
      add<0, 8>(b, offset, w.scale, sum);
    }
    if constexpr (Unpacker::minimum) {
#pragma GCC unroll 4
      for (std::size_t p = 0; p < Panels; ++p) {
        __m512 const x_sum = _mm512_loadu_ps(x.sum.data() + lane(p, b));
#pragma GCC unroll 4
        for (std::size_t r = 0; r < tile_rows; ++r) {
          sum[r][p] = _mm512_fmadd_ps(_mm512_set1_ps(w.minimum[r * w.pitch + b]), x_sum, sum[r][p]);
        }
      }
    }
  }

  [[gnu::always_inline]] void multiply() noexcept {
    for (std::size_t part = 0; part < block_lanes; ++part) {
      __m512 sum[tile_rows][Panels];
#pragma GCC unroll 16
      for (std::size_t i = 0; i < tile_rows * Panels; ++i) {
        sum[i / Panels][i % Panels] = _mm512_setzero_ps();
      }
      for (std::size_t b = part; b < x.blocks; b += block_lanes) { add_block(b, sum); }
#pragma GCC unroll 16
      for (std::size_t i = 0; i < tile_rows * Panels; ++i) {
        __m512& whole = total[i / Panels][i % Panels];
        whole = part == 0 ? sum[i / Panels][i % Panels]
                          : _mm512_add_ps(whole, sum[i / Panels][i % Panels]);
      }
    }
  }

  /// Writes `rows` values for each of `tokens` tokens.
  void store(std::size_t tokens, std::size_t rows, float* y, std::size_t y_stride) const noexcept {
    auto const mask = static_cast<__mmask8>((1U << std::min(rows, tile_rows)) - 1U);
    for (std::size_t p = 0; p < Panels; ++p) {
      __m512 const low01 = _mm512_unpacklo_ps(total[0][p], total[1][p]);
      __m512 const high01 = _mm512_unpackhi_ps(total[0][p], total[1][p]);
      __m512 const low23 = _mm512_unpacklo_ps(total[2][p], total[3][p]);
      __m512 const high23 = _mm512_unpackhi_ps(total[2][p], total[3][p]);
      auto const join = [](__m512 a, __m512 b, bool high) {
        __m512d const x0 = _mm512_castps_pd(a);
        __m512d const x1 = _mm512_castps_pd(b);
        return _mm512_castpd_ps(high ? _mm512_unpackhi_pd(x0, x1) : _mm512_unpacklo_pd(x0, x1));
      };
      // Vector i holds the four rows of tokens i, i + 4, i + 8 and i + 12.
      __m512 const four[4] = {join(low01, low23, false),
                              join(low01, low23, true),
                              join(high01, high23, false),
                              join(high01, high23, true)};
      alignas(64) float rows_of[4][4][4];  // [token % 4, token / 4, row]
      for (std::size_t i = 0; i < 4; ++i) { _mm512_store_ps(&rows_of[i][0][0], four[i]); }
      std::size_t const first_token = p * panel_tokens;
      for (std::size_t t = 0; t < panel_tokens && first_token + t < tokens; ++t) {
        _mm_mask_storeu_ps(
            y + (first_token + t) * y_stride, mask, _mm_load_ps(rows_of[t % 4][t / 4]));
      }
    }
  }
};

template <class Unpacker, std::size_t Panels>
[[gnu::noinline]] void multiply_panels(unpacked_rows const& w,
                                       int8_panels const& x,
                                       std::size_t first,
                                       std::size_t tokens,
                                       std::size_t rows,
                                       float* y,
                                       std::size_t y_stride) noexcept {
  panel_tile<Unpacker, Panels> tile{w, x, first, {}};
  tile.multiply();
  tile.store(tokens, rows, y, y_stride);
}

#endif

}  // namespace terrace::kernel::cpu::detail
