// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/kernel/cpu/detail/block_factors.hpp>
#include <terrace/kernel/cpu/detail/nibbles.hpp>
#include <terrace/kernel/cpu/detail/unpacked.hpp>
#include <terrace/quant/iq4_xs.hpp>
#include <terrace/quant/q4_k.hpp>
#include <terrace/quant/q5_k.hpp>
#include <terrace/quant/q6_k.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

/// Types whose blocks hold 256 elements in eight sub-blocks of 32.
namespace terrace::kernel::cpu::detail {

/// Factors of the eight sub-blocks of q4_k and q5_k. (The four-byte words hold four codes each.)
template <class Block>
void unpack_k_factors(Block const& from, float* scale, float* minimum) noexcept {
#if defined(__AVX512F__)
  // Bytes of the block's head: d and dmin, then the twelve that `quant::k_scales` describes.
  __m128i const head = _mm_loadu_si128(reinterpret_cast<__m128i const*>(&from));
  __m128i const low = _mm_shuffle_epi8(
      head, _mm_setr_epi8(4, 5, 6, 7, 12, 13, 14, 15, 8, 9, 10, 11, 12, 13, 14, 15));
  __m128i const high = _mm_shuffle_epi8(
      head, _mm_setr_epi8(-1, -1, -1, -1, 4, 5, 6, 7, -1, -1, -1, -1, 8, 9, 10, 11));
  __m128i const low_bits =
      _mm_and_si128(_mm_srlv_epi32(low, _mm_setr_epi32(0, 0, 0, 4)),
                    _mm_setr_epi32(0x3F3F3F3F, 0x0F0F0F0F, 0x3F3F3F3F, 0x0F0F0F0F));
  __m128i const high_bits = _mm_and_si128(_mm_srli_epi32(high, 2), _mm_set1_epi32(0x30303030));
  __m512 const code = _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_or_si128(low_bits, high_bits)));
  __m128 const d_dmin = _mm_xor_ps(_mm_cvtph_ps(head), _mm_setr_ps(0.0F, -0.0F, 0.0F, 0.0F));
  __m512i const which = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1);
  __m512 const factor =
      _mm512_mul_ps(code, _mm512_permutexvar_ps(which, _mm512_castps128_ps512(d_dmin)));
  _mm256_storeu_ps(scale, _mm512_castps512_ps256(factor));
  _mm256_storeu_ps(minimum, _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(factor), 1)));
#else
  std::uint32_t word[3];
  std::memcpy(word, from.scales.bytes, sizeof word);
  std::uint32_t const scales[2] = {word[0] & 0x3F3F3F3FU,
                                   (word[2] & 0x0F0F0F0FU) | ((word[0] >> 2U) & 0x30303030U)};
  std::uint32_t const minima[2] = {
      word[1] & 0x3F3F3F3FU, ((word[2] >> 4U) & 0x0F0F0F0FU) | ((word[1] >> 2U) & 0x30303030U)};
  std::uint8_t code[16];
  std::memcpy(code, scales, 8);
  std::memcpy(code + 8, minima, 8);
  scale_codes(to_float(from.d), code, scale);
  scale_codes(-to_float(from.dmin), code + 8, minimum);
#endif
}

#if defined(__AVX512BW__)
/// 32 bytes -> 64 codes: low nibbles, then high nibbles.
[[nodiscard]] inline __m512i split_long_nibbles(std::uint8_t const* bytes) noexcept {
  __m512i const shift = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 4, 4, 4, 4, 4, 4, 4, 4);
  __m512i const twice = _mm512_broadcast_i64x4(load_bytes(bytes));
  return _mm512_and_si512(_mm512_srlv_epi32(twice, shift), _mm512_set1_epi8(15));
}
#endif

struct unpack_q4_k : unpacker {
  using block = quant::q4_k;
  static constexpr bool minimum = true;
  static void unpack(encoded_run run, unpacked_run to) noexcept {
    auto const* const from = run.as<block>();
    for (std::size_t s = 0; s < run.count; ++s) {
      prefetch_ahead<sizeof(block)>(from + s);
      for (std::size_t pair = 0; pair < 4; ++pair) {
        std::uint8_t const* const bytes = from[s].qs + 32 * pair;
        std::uint8_t* const codes = to.codes + 256 * s + 64 * pair;
#if defined(__AVX512BW__)
        _mm512_storeu_si512(codes, split_long_nibbles(bytes));
#elif defined(__AVX2__)
        store_codes(codes, low_nibbles(load_bytes(bytes)));
        store_codes(codes + 32, high_nibbles(load_bytes(bytes)));
#else
        for (std::size_t i = 0; i < 32; ++i) {
          codes[i] = bytes[i] & 15U;
          codes[i + 32] = bytes[i] >> 4U;
        }
#endif
      }
      unpack_k_factors(from[s], to.scale + 8 * s, to.minimum + 8 * s);
    }
  }
};

#if defined(__AVX2__)
/// Bit `Bit` of each byte as 16.
template <int Bit>
[[nodiscard]] inline __m256i fifth_bit(__m256i bytes) noexcept {
  __m256i const moved =
      Bit <= 4 ? _mm256_slli_epi16(bytes, 4 - Bit) : _mm256_srli_epi16(bytes, Bit - 4);
  return _mm256_and_si256(moved, _mm256_set1_epi8(16));
}
#endif

struct unpack_q5_k : unpacker {
  using block = quant::q5_k;
  static constexpr bool minimum = true;
  static void unpack(encoded_run run, unpacked_run to) noexcept {
    auto const* const from = run.as<block>();
    for (std::size_t s = 0; s < run.count; ++s) {
      prefetch_ahead<sizeof(block)>(from + s);
      [&]<std::size_t... Pair>(std::index_sequence<Pair...>) {
        (unpack_pair<Pair>(from[s], to.codes + 256 * s + 64 * Pair), ...);
      }(std::make_index_sequence<4>{});
      unpack_k_factors(from[s], to.scale + 8 * s, to.minimum + 8 * s);
    }
  }

 private:
  template <std::size_t Pair>
  static void unpack_pair(block const& from, std::uint8_t* codes) noexcept {
    std::uint8_t const* const bytes = from.qs + 32 * Pair;
#if defined(__AVX512BW__)
    __m512i const bits = _mm512_inserti64x4(_mm512_set1_epi8(static_cast<char>(1U << (2 * Pair))),
                                            _mm256_set1_epi8(static_cast<char>(2U << (2 * Pair))),
                                            1);
    __mmask64 const high = _mm512_test_epi8_mask(_mm512_broadcast_i64x4(load_bytes(from.qh)), bits);
    __m512i const low = split_long_nibbles(bytes);
    _mm512_storeu_si512(codes, _mm512_mask_add_epi8(low, high, low, _mm512_set1_epi8(16)));
#elif defined(__AVX2__)
    __m256i const high = load_bytes(from.qh);
    store_codes(codes, _mm256_or_si256(low_nibbles(load_bytes(bytes)), fifth_bit<2 * Pair>(high)));
    store_codes(codes + 32,
                _mm256_or_si256(high_nibbles(load_bytes(bytes)), fifth_bit<2 * Pair + 1>(high)));
#else
    for (std::size_t i = 0; i < 32; ++i) {
      unsigned const high = from.qh[i] >> (2 * Pair);
      codes[i] = static_cast<std::uint8_t>((bytes[i] & 15U) | ((high & 1U) << 4U));
      codes[i + 32] = static_cast<std::uint8_t>((bytes[i] >> 4U) | ((high & 2U) << 3U));
    }
#endif
  }
};

struct unpack_q6_k : unpacker {
  using block = quant::q6_k;
  static constexpr int offset_shift = 5;
  static constexpr bool halves = true;
  static void unpack(encoded_run run, unpacked_run to) noexcept {
    auto const* const from = run.as<block>();
    for (std::size_t s = 0; s < run.count; ++s) {
      prefetch_ahead<sizeof(block)>(from + s);
      for (std::size_t half = 0; half < 2; ++half) {
        unpack_half(
            from[s].ql + 64 * half, from[s].qh + 32 * half, to.codes + 256 * s + 128 * half);
      }
      unpack_factors(from[s], to.scale + 8 * s, to.high_scale + 8 * s);
    }
  }

 private:
  static void unpack_half(std::uint8_t const* low,
                          std::uint8_t const* high,
                          std::uint8_t* codes) noexcept {
#if defined(__AVX512BW__)
    __m512i const left = _mm512_setr_epi32(4, 4, 4, 4, 4, 4, 4, 4, 2, 2, 2, 2, 2, 2, 2, 2);
    __m512i const right = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 2, 2, 2, 2, 2, 2, 2, 2);
    __m512i const nibbles = _mm512_loadu_si512(low);
    __m512i const top = _mm512_broadcast_i64x4(load_bytes(high));
    auto const put = [&](std::uint8_t* to, __m512i nibble, __m512i moved) {
      __m512i const bottom = _mm512_and_si512(nibble, _mm512_set1_epi8(15));
      _mm512_storeu_si512(to,
                          _mm512_or_si512(bottom, _mm512_and_si512(moved, _mm512_set1_epi8(48))));
    };
    put(codes, nibbles, _mm512_sllv_epi32(top, left));
    put(codes + 64, _mm512_srli_epi16(nibbles, 4), _mm512_srlv_epi32(top, right));
#elif defined(__AVX2__)
    __m256i const top = load_bytes(high);
    auto const put = [&](int group, __m256i nibbles, __m256i moved) {
      __m256i const bits = _mm256_and_si256(moved, _mm256_set1_epi8(48));
      store_codes(codes + 32 * group, _mm256_or_si256(nibbles, bits));
    };
    put(0, low_nibbles(load_bytes(low)), _mm256_slli_epi16(top, 4));
    put(1, low_nibbles(load_bytes(low + 32)), _mm256_slli_epi16(top, 2));
    put(2, high_nibbles(load_bytes(low)), top);
    put(3, high_nibbles(load_bytes(low + 32)), _mm256_srli_epi16(top, 2));
#else
    for (std::size_t i = 0; i < 32; ++i) {
      codes[i] = static_cast<std::uint8_t>((low[i] & 15U) | ((high[i] << 4U) & 48U));
      codes[i + 32] = static_cast<std::uint8_t>((low[i + 32] & 15U) | ((high[i] << 2U) & 48U));
      codes[i + 64] = static_cast<std::uint8_t>((low[i] >> 4U) | (high[i] & 48U));
      codes[i + 96] = static_cast<std::uint8_t>((low[i + 32] >> 4U) | ((high[i] >> 2U) & 48U));
    }
#endif
  }

  static void unpack_factors(block const& from, float* scale, float* high_scale) noexcept {
    float const d = to_float(from.d);
#if defined(__AVX2__)
    __m128i const order = _mm_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15);
    __m128i const codes = _mm_loadu_si128(reinterpret_cast<__m128i const*>(from.scales));
#if defined(__AVX512F__)
    __m512 const level = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_shuffle_epi8(codes, order)));
    __m512 const factor = _mm512_mul_ps(level, _mm512_set1_ps(d));
    _mm256_storeu_ps(scale, _mm512_castps512_ps256(factor));
    _mm256_storeu_ps(high_scale,
                     _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(factor), 1)));
#else
    alignas(16) std::int8_t sorted[16];
    _mm_store_si128(reinterpret_cast<__m128i*>(sorted), _mm_shuffle_epi8(codes, order));
    scale_codes(d, sorted, scale);
    scale_codes(d, sorted + 8, high_scale);
#endif
#else
    for (std::size_t j = 0; j < 8; ++j) {
      scale[j] = d * static_cast<float>(from.scales[2 * j]);
      high_scale[j] = d * static_cast<float>(from.scales[2 * j + 1]);
    }
#endif
  }
};

struct unpack_iq4_xs : unpacker {
  using block = quant::iq4_xs;
  static constexpr int offset_shift = 7;
  static void unpack(encoded_run run, unpacked_run to) noexcept {
    auto const* const from = run.as<block>();
    for (std::size_t s = 0; s < run.count; ++s) {
      split_nibbles<iq4_codes, 16>(from[s].qs, 8, to.codes + 256 * s);
      unpack_factors(from[s], to.scale + 8 * s);
    }
  }

 private:
  static void unpack_factors(block const& from, float* scale) noexcept {
    std::uint32_t const high = from.scales_h.value();
    std::uint32_t low = 0;
    std::memcpy(&low, from.scales_l, sizeof low);
#if defined(__AVX2__)
    __m256i const lows = _mm256_srlv_epi32(_mm256_set1_epi32(static_cast<int>(low)),
                                           _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28));
    __m256i const highs = _mm256_srlv_epi32(_mm256_set1_epi32(static_cast<int>(high << 4U)),
                                            _mm256_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14));
    __m256i const code = _mm256_or_si256(_mm256_and_si256(lows, _mm256_set1_epi32(15)),
                                         _mm256_and_si256(highs, _mm256_set1_epi32(48)));
    __m256 const level = _mm256_cvtepi32_ps(_mm256_sub_epi32(code, _mm256_set1_epi32(32)));
    _mm256_storeu_ps(scale, _mm256_mul_ps(_mm256_set1_ps(to_float(from.d)), level));
#else
    float const d = to_float(from.d);
    for (std::uint32_t j = 0; j < 8; ++j) {
      std::uint32_t const code = ((low >> (4U * j)) & 15U) | (((high >> (2U * j)) & 3U) << 4U);
      scale[j] = d * static_cast<float>(static_cast<int>(code) - 32);
    }
#endif
  }
};

}  // namespace terrace::kernel::cpu::detail
