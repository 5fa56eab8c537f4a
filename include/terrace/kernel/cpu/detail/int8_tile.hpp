// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/kernel/cpu/detail/f32x16.hpp>
#include <terrace/kernel/cpu/detail/int8_rows.hpp>
#include <terrace/kernel/cpu/detail/unpack.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

/// Products of four rows of weights with 8-bit vectors, in the one order that all tilings share:
///
///   for each block b, ascending:  acc[b % 4] = fma(isum, scale * xscale, acc[b % 4])   (low half,
///   then high half)
///                                 acc[b % 4] = fma(minimum, xsum, acc[b % 4])
///   y = ((acc[0] + acc[1]) + acc[2]) + acc[3]
///
/// where isum is the exact integer sum of (code - offset) * xcode over the block (or half block).
namespace terrace::kernel::cpu::detail {

/// Rows that are unpacked and multiplied together.
inline constexpr std::size_t tile_rows = 4;

/// Blocks unpacked at a time when few vectors are multiplied: four rows of codes and factors stay
/// in the first cache.
inline constexpr std::size_t piece_blocks = 128;

/// Four rows of codes and factors; `pitch` is the distance of rows in blocks.
struct unpacked_rows {
  std::size_t pitch;
  std::uint8_t* codes;
  float* scale;
  float* high_scale;
  float* minimum;

  [[nodiscard]] unpacked_run row(std::size_t r) const noexcept {
    std::size_t const at = r * pitch;
    return {codes + at * block_cols, scale + at, high_scale + at, minimum + at};
  }
};

/// Unpacks blocks [first, first + count) of rows [row, row + tile_rows) of `w` to the start of
/// `to`; rows past the last repeat it. `first` and `count` are whole encoded blocks. Returns `to`
/// with the pitch that was used.
template <class Unpacker>
[[nodiscard]] unpacked_rows unpack_rows(matrix_view const& w,
                                        std::size_t row,
                                        std::size_t first,
                                        std::size_t count,
                                        unpacked_rows to) noexcept {
  using block = typename Unpacker::block;
  constexpr std::size_t step = block::elements / block_cols;
  std::size_t const row_blocks = w.cols / block_cols;
  std::size_t const scale_bytes = Unpacker::outer_scales ? traits_of(w.scale_type).block_bytes : 0;
  auto const unpack = [&](std::size_t at, std::size_t blocks, unpacked_run target) {
    std::byte const* const scales = Unpacker::outer_scales ? w.scales + at * scale_bytes : nullptr;
    Unpacker::unpack({w.data + at / step * sizeof(block), blocks / step, scales, w.scale_type},
                     target);
  };
  if (count == row_blocks && row + tile_rows <= w.rows) {  // whole rows are one run
    unpack(row * row_blocks, tile_rows * count, to.row(0));
    to.pitch = count;
    return to;
  }
  for (std::size_t r = 0; r < tile_rows; ++r) {
    unpack(std::min<std::size_t>(row + r, w.rows - 1) * row_blocks + first, count, to.row(r));
  }
  return to;
}

/// One vector's part of `int8_rows`, from some block on.
struct int8_row {
  std::int8_t const* codes;
  float const* scale;
  float const* sum;
  std::int32_t const* code_sum;
  std::int32_t const* low_sum;
};
[[nodiscard]] inline int8_row row_of(int8_rows const& rows,
                                     std::size_t token,
                                     std::size_t block) noexcept {
  std::size_t const at = token * rows.blocks_pitch + block;
  return {rows.codes.data() + at * block_cols,
          rows.scale.data() + at,
          rows.sum.data() + at,
          rows.code_sum.data() + at,
          rows.low_sum.data() + at};
}

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__) && \
    defined(__AVX512VNNI__)
#define TERRACE_KERNEL_VNNI 1

/// Four vectors of dword partial sums, one a row -> in each 128-bit lane the sums of that lane, row
/// by row.
[[nodiscard]] inline __m512i sum_lanes(__m512i const (&row)[tile_rows]) noexcept {
  __m512i const a = _mm512_add_epi32(_mm512_unpacklo_epi32(row[0], row[1]),
                                     _mm512_unpackhi_epi32(row[0], row[1]));
  __m512i const b = _mm512_add_epi32(_mm512_unpacklo_epi32(row[2], row[3]),
                                     _mm512_unpackhi_epi32(row[2], row[3]));
  return _mm512_add_epi32(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
}

/// Four values -> each in all lanes of one 128-bit part.
[[nodiscard]] inline __m512i repeat_each(void const* four) noexcept {
  __m512i const index = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
  return _mm512_permutexvar_epi32(
      index, _mm512_castsi128_si512(_mm_loadu_si128(static_cast<__m128i const*>(four))));
}

/// What the offset of codes adds to the integer sums of four blocks, for each of four rows.
template <class Unpacker>
[[nodiscard]] __m512i offset_of(std::int32_t const* code_sum) noexcept {
  if constexpr (Unpacker::offset_shift < 0) {
    return _mm512_setzero_si512();
  } else {
    return _mm512_slli_epi32(repeat_each(code_sum), Unpacker::offset_shift);
  }
}

/// Factors of four blocks of four rows, `pitch` apart -> [4 blocks, 4 rows].
[[nodiscard]] inline __m512 transpose_factors(float const* factor, std::size_t pitch) noexcept {
  __m512 rows = _mm512_castps128_ps512(_mm_loadu_ps(factor));
  rows = _mm512_mask_broadcast_f32x4(rows, 0x00F0, _mm_loadu_ps(factor + pitch));
  rows = _mm512_mask_broadcast_f32x4(rows, 0x0F00, _mm_loadu_ps(factor + 2 * pitch));
  rows = _mm512_mask_broadcast_f32x4(rows, 0xF000, _mm_loadu_ps(factor + 3 * pitch));
  __m512i const index = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  return _mm512_permutexvar_ps(index, rows);
}

/// Adds `count` blocks, the first of which is number 0 modulo 4, to acc: [4 partial sums, 4 rows].
template <class Unpacker>
void multiply_add_rows(unpacked_rows const& w,
                       int8_row const& x,
                       std::size_t count,
                       float* acc) noexcept {
  __m512 sum = _mm512_load_ps(acc);
  for (std::size_t b = 0; b < count; b += block_lanes) {
    __m512i const x_low = _mm512_loadu_si512(x.codes + b * block_cols);
    __m512i const x_high = _mm512_loadu_si512(x.codes + (b + 2) * block_cols);
    __m512i first[tile_rows];   // partial sums of blocks b and b + 1
    __m512i second[tile_rows];  // of b + 2 and b + 3
#pragma GCC unroll 4
    for (std::size_t r = 0; r < tile_rows; ++r) {
      std::uint8_t const* const code = w.codes + (r * w.pitch + b) * block_cols;
      first[r] = _mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_loadu_si512(code), x_low);
      second[r] =
          _mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_loadu_si512(code + 64), x_high);
    }
    __m512i const halves01 =
        sum_lanes(first);  // low and high half of block b, then of b + 1; four rows each
    __m512i const halves23 = sum_lanes(second);
    __m512i const low = _mm512_shuffle_i64x2(halves01, halves23, _MM_SHUFFLE(2, 0, 2, 0));
    __m512i const high = _mm512_shuffle_i64x2(halves01, halves23, _MM_SHUFFLE(3, 1, 3, 1));
    __m512 const scale = _mm512_castsi512_ps(repeat_each(x.scale + b));
    auto const live =
        f32x16::first(tile_rows * (count - b));  // the last group may hold fewer than four blocks
    auto const add = [&](__m512i isum, float const* factor) {
      __m512 const both = _mm512_mul_ps(transpose_factors(factor + b, w.pitch), scale);
      sum = _mm512_mask3_fmadd_ps(_mm512_cvtepi32_ps(isum), both, sum, live);
    };
    __m512i const sum_offset = offset_of<Unpacker>(x.code_sum + b);
    if constexpr (Unpacker::halves) {
      __m512i const low_offset = offset_of<Unpacker>(x.low_sum + b);
      add(_mm512_sub_epi32(low, low_offset), w.scale);
      add(_mm512_sub_epi32(high, _mm512_sub_epi32(sum_offset, low_offset)), w.high_scale);
    } else {
      add(_mm512_sub_epi32(_mm512_add_epi32(low, high), sum_offset), w.scale);
    }
    if constexpr (Unpacker::minimum) {
      __m512 const x_sum = _mm512_castsi512_ps(repeat_each(x.sum + b));
      sum = _mm512_mask3_fmadd_ps(transpose_factors(w.minimum + b, w.pitch), x_sum, sum, live);
    }
  }
  _mm512_store_ps(acc, sum);
}

#else

/// Adds `count` blocks, the first of which is number 0 modulo 4, to acc: [4 partial sums, 4 rows].
template <class Unpacker>
[[gnu::noinline]] void multiply_add_rows(unpacked_rows const& w,
                                         int8_row const& x,
                                         std::size_t count,
                                         float* acc) noexcept {
  constexpr std::int32_t offset = Unpacker::offset_shift < 0 ? 0 : 1 << Unpacker::offset_shift;
  for (std::size_t b = 0; b < count; ++b) {
    for (std::size_t r = 0; r < tile_rows; ++r) {
      std::uint8_t const* const code = w.codes + (r * w.pitch + b) * block_cols;
      std::int8_t const* const other = x.codes + b * block_cols;
      std::int32_t low = -offset * x.low_sum[b];
      std::int32_t high = -offset * (x.code_sum[b] - x.low_sum[b]);
      for (std::size_t i = 0; i < block_cols / 2; ++i) { low += code[i] * other[i]; }
      for (std::size_t i = block_cols / 2; i < block_cols; ++i) { high += code[i] * other[i]; }
      std::size_t const factor = r * w.pitch + b;
      float& sum = acc[(b % block_lanes) * tile_rows + r];
      if constexpr (Unpacker::halves) {
        sum = multiply_add(static_cast<float>(low), w.scale[factor] * x.scale[b], sum);
        sum = multiply_add(static_cast<float>(high), w.high_scale[factor] * x.scale[b], sum);
      } else {
        sum = multiply_add(static_cast<float>(low + high), w.scale[factor] * x.scale[b], sum);
      }
      if constexpr (Unpacker::minimum) { sum = multiply_add(w.minimum[factor], x.sum[b], sum); }
    }
  }
}

#endif

}  // namespace terrace::kernel::cpu::detail
