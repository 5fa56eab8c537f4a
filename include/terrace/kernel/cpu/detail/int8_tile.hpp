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

/// Sums over the first and the last 16 elements of four blocks of four rows: [4 blocks, 4 rows]
/// each.
struct half_sums {
  __m512i low, high;
};
[[nodiscard]] inline half_sums integer_sums(__m512i const (&code)[tile_rows][2],
                                            std::int8_t const* x) noexcept {
  __m512i const zero = _mm512_setzero_si512();
  __m512i const x01 = _mm512_loadu_si512(x);
  __m512i const x23 = _mm512_loadu_si512(x + 64);
  __m512i first[tile_rows];   // of blocks 0 and 1
  __m512i second[tile_rows];  // of blocks 2 and 3
#pragma GCC unroll 4
  for (std::size_t r = 0; r < tile_rows; ++r) {
    first[r] = _mm512_dpbusd_epi32(zero, code[r][0], x01);
    second[r] = _mm512_dpbusd_epi32(zero, code[r][1], x23);
  }
  __m512i const halves01 = sum_lanes(first);  // low and high half of block 0, then of block 1
  __m512i const halves23 = sum_lanes(second);
  return {_mm512_shuffle_i64x2(halves01, halves23, _MM_SHUFFLE(2, 0, 2, 0)),
          _mm512_shuffle_i64x2(halves01, halves23, _MM_SHUFFLE(3, 1, 3, 1))};
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

/// Adds `count` blocks, the first of which is number 0 modulo 4, to acc[i]: [4 partial sums, 4
/// rows], for `Tokens` vectors that share the loads of weights.
template <class Unpacker, std::size_t Tokens>
void multiply_add_rows(unpacked_rows const& w,
                       int8_row const (&x)[Tokens],
                       std::size_t count,
                       float* const (&acc)[Tokens]) noexcept {
  __m512 sum[Tokens];
  for (std::size_t i = 0; i < Tokens; ++i) { sum[i] = _mm512_load_ps(acc[i]); }
  for (std::size_t b = 0; b < count; b += block_lanes) {
    __m512i code[tile_rows][2];
#pragma GCC unroll 4
    for (std::size_t r = 0; r < tile_rows; ++r) {
      std::uint8_t const* const at = w.codes + (r * w.pitch + b) * block_cols;
      code[r][0] = _mm512_loadu_si512(at);
      code[r][1] = _mm512_loadu_si512(at + 64);
    }
    __m512 const scale = transpose_factors(w.scale + b, w.pitch);
    __m512 const high_scale =
        Unpacker::halves ? transpose_factors(w.high_scale + b, w.pitch) : scale;
    __m512 const minimum = Unpacker::minimum ? transpose_factors(w.minimum + b, w.pitch) : scale;
    __mmask16 const live = f32x16::first(tile_rows * (count - b));  // the last group may be short
#pragma GCC unroll 4
    for (std::size_t i = 0; i < Tokens; ++i) {
      auto const [low, high] = integer_sums(code, x[i].codes + b * block_cols);
      __m512 const x_scale = _mm512_castsi512_ps(repeat_each(x[i].scale + b));
      auto const add = [&](__m512i isum, __m512 factor) {
        sum[i] = _mm512_mask3_fmadd_ps(
            _mm512_cvtepi32_ps(isum), _mm512_mul_ps(factor, x_scale), sum[i], live);
      };
      __m512i const sum_offset = offset_of<Unpacker>(x[i].code_sum + b);
      if constexpr (Unpacker::halves) {
        __m512i const low_offset = offset_of<Unpacker>(x[i].low_sum + b);
        add(_mm512_sub_epi32(low, low_offset), scale);
        add(_mm512_sub_epi32(high, _mm512_sub_epi32(sum_offset, low_offset)), high_scale);
      } else {
        add(_mm512_sub_epi32(_mm512_add_epi32(low, high), sum_offset), scale);
      }
      if constexpr (Unpacker::minimum) {
        __m512 const x_sum = _mm512_castsi512_ps(repeat_each(x[i].sum + b));
        sum[i] = _mm512_mask3_fmadd_ps(minimum, x_sum, sum[i], live);
      }
    }
  }
  for (std::size_t i = 0; i < Tokens; ++i) { _mm512_store_ps(acc[i], sum[i]); }
}

#else

/// Integer sums over the first and the last 16 elements of one block.
struct half_sums {
  std::int32_t low, high;
};

#if defined(__AVX2__)
/// One block of four rows: sums [row], the offset taken off.
template <class Unpacker>
void integer_sums(unpacked_rows const& w,
                  int8_row const& x,
                  std::size_t b,
                  half_sums (&sums)[tile_rows]) noexcept {
  __m256i const other =
      _mm256_loadu_si256(reinterpret_cast<__m256i const*>(x.codes + b * block_cols));
  __m256i row[tile_rows];
#pragma GCC unroll 4
  for (std::size_t r = 0; r < tile_rows; ++r) {
    __m256i const code = load_bytes(w.codes + (r * w.pitch + b) * block_cols);
    __m256i pairs;
    if constexpr (Unpacker::offset_shift ==
                  7) {  // 255 * 127 * 2 does not fit 16 bits: multiply magnitudes
      __m256i const weight = _mm256_xor_si256(code, _mm256_set1_epi8(-128));
      pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(weight), _mm256_sign_epi8(other, weight));
    } else {
      pairs = _mm256_maddubs_epi16(code, other);
    }
    row[r] = _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
  }
  __m256i const both =
      _mm256_hadd_epi32(_mm256_hadd_epi32(row[0], row[1]), _mm256_hadd_epi32(row[2], row[3]));
  constexpr bool offset_left = Unpacker::offset_shift >= 0 && Unpacker::offset_shift != 7;
  constexpr std::int32_t offset = offset_left ? 1 << Unpacker::offset_shift : 0;
  alignas(32) std::int32_t lanes[2][tile_rows];
  _mm256_store_si256(reinterpret_cast<__m256i*>(lanes), both);
  for (std::size_t r = 0; r < tile_rows; ++r) {
    sums[r] = {lanes[0][r] - offset * x.low_sum[b],
               lanes[1][r] - offset * (x.code_sum[b] - x.low_sum[b])};
  }
}
#else
template <class Unpacker>
void integer_sums(unpacked_rows const& w,
                  int8_row const& x,
                  std::size_t b,
                  half_sums (&sums)[tile_rows]) noexcept {
  constexpr std::int32_t offset = Unpacker::offset_shift < 0 ? 0 : 1 << Unpacker::offset_shift;
  std::int8_t const* const other = x.codes + b * block_cols;
  for (std::size_t r = 0; r < tile_rows; ++r) {
    std::uint8_t const* const code = w.codes + (r * w.pitch + b) * block_cols;
    std::int32_t low = 0;
    std::int32_t high = 0;
    for (std::size_t i = 0; i < block_cols / 2; ++i) {
      low += code[i] * other[i];
      high += code[i + block_cols / 2] * other[i + block_cols / 2];
    }
    sums[r] = {low - offset * x.low_sum[b], high - offset * (x.code_sum[b] - x.low_sum[b])};
  }
}
#endif

/// Adds `count` blocks, the first of which is number 0 modulo 4, to acc: [4 partial sums, 4 rows].
template <class Unpacker>
[[gnu::noinline]] void multiply_add_rows(unpacked_rows const& w,
                                         int8_row const (&x)[1],
                                         std::size_t count,
                                         float* const (&acc)[1]) noexcept {
  for (std::size_t b = 0; b < count; ++b) {
    half_sums sums[tile_rows];
    integer_sums<Unpacker>(w, x[0], b, sums);
    float const x_scale = x[0].scale[b];
    for (std::size_t r = 0; r < tile_rows; ++r) {
      std::size_t const at = r * w.pitch + b;
      float& sum = acc[0][(b % block_lanes) * tile_rows + r];
      if constexpr (Unpacker::halves) {
        sum = multiply_add(static_cast<float>(sums[r].low), w.scale[at] * x_scale, sum);
        sum = multiply_add(static_cast<float>(sums[r].high), w.high_scale[at] * x_scale, sum);
      } else {
        sum = multiply_add(
            static_cast<float>(sums[r].low + sums[r].high), w.scale[at] * x_scale, sum);
      }
      if constexpr (Unpacker::minimum) { sum = multiply_add(w.minimum[at], x[0].sum[b], sum); }
    }
  }
}

#endif

}  // namespace terrace::kernel::cpu::detail
