// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/block.hpp>
#include <terrace/kernel/cpu/detail/int8_tile.hpp>
#include <terrace/kernel/cpu/detail/nibbles.hpp>
#include <terrace/kernel/cpu/detail/unpack_32.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>

/// Four rows of four-bit codes times few vectors, straight from the file's layout: codes go from
/// memory to registers and into the product, with the bits of `multiply_add_rows`.
///
/// A register holds the low nibbles of four blocks, one in each 128-bit part, another the high
/// ones, so that both add up in one accumulator per row.
namespace terrace::kernel::cpu::detail {

/// Types whose rows are multiplied so; specialised below.
template <class Unpacker>
struct nibble_type {
  static constexpr bool known = false;
};

#if defined(TERRACE_KERNEL_VNNI) && defined(__AVX512VBMI__)

/// Where four blocks of one row lie.
struct nibble_blocks {
  std::byte const* codes;
  std::byte const* scales;  ///< of types with `outer_scales`
};

/// The codes that the low four bits of each byte stand for; the bits above do not matter.
template <class Levels>
[[nodiscard]] __m512i codes_of(__m512i bytes) noexcept {
  return _mm512_permutexvar_epi8(bytes, _mm512_broadcast_i32x4(load_nibbles(Levels::levels.code)));
}
template <>
[[nodiscard]] inline __m512i codes_of<plain_levels>(__m512i bytes) noexcept {
  return _mm512_and_si512(bytes, _mm512_set1_epi8(15));
}

/// Blocks that begin with their scale; low nibbles are the first 16 elements.
template <class Block, class Levels>
struct split_nibble_type {
  static constexpr bool known = true;
  using levels = Levels;

  [[nodiscard]] static __m512i load(nibble_blocks at) noexcept {
    auto const* const block = reinterpret_cast<Block const*>(at.codes);
    __m512i all = _mm512_castsi128_si512(load_nibbles(block[0].qs));
    all = _mm512_mask_broadcast_i32x4(all, 0x00F0, load_nibbles(block[1].qs));
    all = _mm512_mask_broadcast_i32x4(all, 0x0F00, load_nibbles(block[2].qs));
    return _mm512_mask_broadcast_i32x4(all, 0xF000, load_nibbles(block[3].qs));
  }
  /// The elements of four blocks that the low nibbles meet, then those that the high ones meet.
  static void arrange(__m512i x01, __m512i x23, __m512i& low, __m512i& high) noexcept {
    low = _mm512_shuffle_i64x2(x01, x23, _MM_SHUFFLE(2, 0, 2, 0));
    high = _mm512_shuffle_i64x2(x01, x23, _MM_SHUFFLE(3, 1, 3, 1));
  }

 protected:
  static_assert(3 * sizeof(Block) + 2 <= 64, "one load covers the scales of four blocks");

  /// The `Bytes` first bytes of four blocks of four rows: [4 blocks, 4 rows].
  template <std::size_t Bytes>
  [[nodiscard]] static __m512i heads(nibble_blocks const (&rows)[tile_rows]) noexcept {
    static constexpr auto where = [] {
      struct {
        alignas(64) std::uint8_t index[64];
      } table{};
      for (std::size_t i = 0; i < 16 * Bytes; ++i) {
        table.index[i] = static_cast<std::uint8_t>(i / (4 * Bytes) * sizeof(Block) + i % Bytes);
      }
      return table;
    }();
    constexpr __mmask64 first_row = Bytes == 1 ? 0x1111 : 0x0303'0303;
    __m512i const index = _mm512_load_si512(where.index);
    __m512i all =
        _mm512_maskz_permutexvar_epi8(first_row, index, _mm512_loadu_si512(rows[0].codes));
#pragma GCC unroll 3
    for (std::size_t r = 1; r < tile_rows; ++r) {
      all = _mm512_mask_permutexvar_epi8(
          all, first_row << (r * Bytes), index, _mm512_loadu_si512(rows[r].codes));
    }
    return all;
  }
};

/// The same with a binary16 scale.
template <class Block, class Levels>
struct half_nibble_type : split_nibble_type<Block, Levels> {
  [[nodiscard]] static __m512 factors(nibble_blocks const (&rows)[tile_rows],
                                      quant_type /*of the scales*/) noexcept {
    return _mm512_cvtph_ps(_mm512_castsi512_si256(half_nibble_type::template heads<2>(rows)));
  }
};
template <>
struct nibble_type<unpack_q4_0> : half_nibble_type<quant::q4_0, plain_levels> {};
template <>
struct nibble_type<unpack_iq4_nl> : half_nibble_type<quant::iq4_nl, iq4_codes> {};
template <>
struct nibble_type<unpack_mxfp4> : split_nibble_type<quant::mxfp4, e2m1_codes> {
  [[nodiscard]] static __m512 factors(nibble_blocks const (&rows)[tile_rows],
                                      quant_type /*of the scales*/) noexcept {
    return e8m0_halves(_mm512_cvtepu8_epi32(_mm512_castsi512_si128(heads<1>(rows)))).v;
  }
};

/// Blocks of codes alone; element 2i is in the low nibble of byte i. Scales lie in another tensor.
template <class Levels>
struct spread_nibble_type {
  static constexpr bool known = true;
  using levels = Levels;

  [[nodiscard]] static __m512i load(nibble_blocks at) noexcept {
    return _mm512_loadu_si512(at.codes);
  }
  static void arrange(__m512i x01, __m512i x23, __m512i& low, __m512i& high) noexcept {
    static constexpr auto where = [] {
      struct {
        alignas(64) std::uint8_t even[64], odd[64];
      } table{};
      for (std::size_t i = 0; i < 64; ++i) {
        table.even[i] = static_cast<std::uint8_t>(2 * i);
        table.odd[i] = static_cast<std::uint8_t>(2 * i + 1);
      }
      return table;
    }();
    low = _mm512_permutex2var_epi8(x01, _mm512_load_si512(where.even), x23);
    high = _mm512_permutex2var_epi8(x01, _mm512_load_si512(where.odd), x23);
  }
};
template <>
struct nibble_type<unpack_mxfp4_packed> : spread_nibble_type<e2m1_codes> {
  [[nodiscard]] static __m512 factors(nibble_blocks const (&rows)[tile_rows],
                                      quant_type /*of the scales*/) noexcept {
    std::uint32_t four[tile_rows];
    for (std::size_t r = 0; r < tile_rows; ++r) { std::memcpy(&four[r], rows[r].scales, 4); }
    __m128i const by_row = _mm_loadu_si128(reinterpret_cast<__m128i const*>(four));
    __m128i const by_block = _mm_shuffle_epi8(
        by_row, _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
    return e8m0_halves(_mm512_cvtepu8_epi32(by_block)).v;
  }
};

template <>
struct nibble_type<unpack_int4_g32> : spread_nibble_type<plain_levels> {
  [[nodiscard]] static __m512 factors(nibble_blocks const (&rows)[tile_rows],
                                      quant_type of_scales) noexcept {
    if (of_scales == quant_type::f32) {
      float four[tile_rows][block_lanes];
      for (std::size_t r = 0; r < tile_rows; ++r) { std::memcpy(four[r], rows[r].scales, 16); }
      return transpose_factors(four[0], block_lanes);
    }
    std::uint64_t four[tile_rows];
    for (std::size_t r = 0; r < tile_rows; ++r) { std::memcpy(&four[r], rows[r].scales, 8); }
    __m256i const by_row = _mm256_loadu_si256(reinterpret_cast<__m256i const*>(four));
    __m256i const by_block = _mm256_permutexvar_epi16(
        _mm256_setr_epi16(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15), by_row);
    return of_scales == quant_type::f16
               ? _mm512_cvtph_ps(by_block)
               : _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(by_block), 16));
  }
};

/// Adds `blocks` blocks, a multiple of four, of four rows to sums: [4 partial sums, 4 rows], for
/// `Tokens` vectors. `pitch`: bytes between the rows of a matrix, of which the next four are
/// prefetched.
template <class Unpacker, std::size_t Tokens>
void multiply_nibbles(nibble_blocks (&rows)[tile_rows],
                      std::size_t pitch,
                      quant_type scale_type,
                      std::size_t blocks,
                      int8_row const (&x)[Tokens],
                      float (&sums)[Tokens][block_lanes * tile_rows]) noexcept {
  using type = nibble_type<Unpacker>;
  constexpr std::size_t step = block_lanes * sizeof(typename Unpacker::block);
  [[maybe_unused]] std::size_t const scale_bytes = traits_of(scale_type).block_bytes;
  __m512 sum[Tokens];
  for (std::size_t i = 0; i < Tokens; ++i) { sum[i] = _mm512_setzero_ps(); }
  for (std::size_t b = 0; b < blocks; b += block_lanes) {
    __m512 const scale = type::factors(rows, scale_type);
    __m512i low[tile_rows], high[tile_rows];
#pragma GCC unroll 4
    for (std::size_t r = 0; r < tile_rows; ++r) {
      __builtin_prefetch(rows[r].codes + tile_rows * pitch, 0, 2);
      __m512i const bytes = type::load(rows[r]);
      low[r] = codes_of<typename type::levels>(bytes);
      high[r] = codes_of<typename type::levels>(_mm512_srli_epi32(bytes, 4));
      rows[r].codes += step;
      if constexpr (Unpacker::outer_scales) { rows[r].scales += block_lanes * scale_bytes; }
    }
#pragma GCC unroll 4
    for (std::size_t i = 0; i < Tokens; ++i) {
      std::int8_t const* const at = x[i].codes + b * block_cols;
      __m512i x_low, x_high;
      type::arrange(_mm512_loadu_si512(at), _mm512_loadu_si512(at + 64), x_low, x_high);
      __m512i product[tile_rows];
#pragma GCC unroll 4
      for (std::size_t r = 0; r < tile_rows; ++r) {
        product[r] = _mm512_dpbusd_epi32(
            _mm512_dpbusd_epi32(_mm512_setzero_si512(), low[r], x_low), high[r], x_high);
      }
      __m512i const isum =
          _mm512_sub_epi32(sum_lanes(product), offset_of<Unpacker>(x[i].code_sum + b));
      __m512 const x_scale = _mm512_castsi512_ps(repeat_each(x[i].scale + b));
      sum[i] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(isum), _mm512_mul_ps(scale, x_scale), sum[i]);
    }
  }
  for (std::size_t i = 0; i < Tokens; ++i) { _mm512_storeu_ps(sums[i], sum[i]); }
}

#endif

}  // namespace terrace::kernel::cpu::detail
