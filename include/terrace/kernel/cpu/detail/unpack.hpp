// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/block.hpp>
#include <terrace/kernel/cpu/detail/int8_rows.hpp>
#include <terrace/kernel/cpu/detail/intrinsics.hpp>
#include <terrace/quant/half.hpp>
#include <terrace/quant/int4_g32.hpp>
#include <terrace/quant/iq4_nl.hpp>
#include <terrace/quant/iq4_xs.hpp>
#include <terrace/quant/mxfp4.hpp>
#include <terrace/quant/mxfp4_packed.hpp>
#include <terrace/quant/q4_0.hpp>
#include <terrace/quant/q4_1.hpp>
#include <terrace/quant/q4_k.hpp>
#include <terrace/quant/q5_k.hpp>
#include <terrace/quant/q6_k.hpp>
#include <terrace/quant/q8_0.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

/// The weight types with an integer product, brought to one form: unsigned codes in element order
/// and, for every 32 elements, float factors, such that  w = scale * (code - offset) + minimum.
namespace terrace::kernel::cpu::detail {

/// Where a run of encoded blocks of one row goes.
struct unpacked_run {
  std::uint8_t* codes;  ///< 32 for each block
  float* scale;         ///< one a block; of its first 16 elements when the type has two
  float* high_scale;    ///< of the last 16 elements; only for types with `halves`
  float* minimum;       ///< one a block; only for types with `minimum`
};

/// Where a run of encoded blocks comes from.
struct encoded_run {
  std::byte const* blocks;
  std::size_t count;
  std::byte const* scales;  ///< one a block, for types with `outer_scales`
  quant_type scale_type;

  template <class Block>
  [[nodiscard]] Block const* as() const noexcept {
    return reinterpret_cast<Block const*>(
        blocks);  // bytes in and out: alignment 1, trivially copyable
  }
};

/// Properties shared by the unpackers; each overrides what differs.
struct unpacker {
  static constexpr int offset_shift = -1;  ///< offset is 2^offset_shift; -1 means none
  static constexpr bool minimum = false;
  static constexpr bool halves = false;        ///< two scales for 32 elements
  static constexpr bool outer_scales = false;  ///< scales lie in another tensor
};

[[nodiscard]] inline float to_float(quant::le_f16 half) noexcept {
#if defined(__F16C__)
  return _cvtsh_ss(half.bits.value());
#else
  return half.value();
#endif
}

// Below are the loops that compilers do not turn into the few instructions they need.

#if defined(__AVX2__)
[[nodiscard]] inline __m256i low_nibbles(__m256i bytes) noexcept {
  return _mm256_and_si256(bytes, _mm256_set1_epi8(15));
}
[[nodiscard]] inline __m256i high_nibbles(__m256i bytes) noexcept {
  return low_nibbles(_mm256_srli_epi16(bytes, 4));
}
[[nodiscard]] inline __m256i load_bytes(std::uint8_t const* bytes) noexcept {
  return _mm256_loadu_si256(reinterpret_cast<__m256i const*>(bytes));
}
inline void store_codes(std::uint8_t* to, __m256i codes) noexcept {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), codes);
}
[[nodiscard]] inline __m128i load_nibbles(std::uint8_t const* bytes) noexcept {
  return _mm_loadu_si128(reinterpret_cast<__m128i const*>(bytes));
}
#endif

/// Some hundred nanoseconds of reading, whole pages past which the hardware prefetcher would stop.
inline constexpr std::size_t prefetch_bytes = 4096;

/// Asks for the memory that follows `at` at a distance. Weights stream through once, and while a
/// tile is multiplied the hardware prefetcher has nothing to follow. An address past the end is
/// harmless.
template <std::size_t Bytes>
inline void prefetch_ahead(void const* at) noexcept {
#if defined(__GNUC__)
  for (std::size_t line = 0; line < Bytes; line += 64) {
    __builtin_prefetch(static_cast<char const*>(at) + prefetch_bytes + line, 0, 2);
  }
#endif
}

/// Codes as they are, for types whose levels are evenly spaced.
struct plain_levels {
#if defined(__AVX2__)
  static __m256i map(__m256i codes) noexcept { return codes; }
#endif
#if defined(__AVX512BW__)
  static __m512i map(__m512i codes) noexcept { return codes; }
#endif
  static std::uint8_t map(std::uint8_t code) noexcept { return code; }
};

/// Levels that are not evenly spaced, moved up by 2^Shift so that they are unsigned.
template <std::int8_t const (&Levels)[16], int Shift>
struct raised_levels {
  struct table {
    alignas(16) std::uint8_t code[16];
    constexpr table() : code{} {
      for (int i = 0; i < 16; ++i) {
        code[i] = static_cast<std::uint8_t>(Levels[i] + (1 << Shift));
      }
    }
  };
  static constexpr table levels{};

#if defined(__AVX2__)
  static __m256i map(__m256i codes) noexcept {
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(load_nibbles(levels.code)), codes);
  }
#endif
#if defined(__AVX512BW__)
  static __m512i map(__m512i codes) noexcept {
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(load_nibbles(levels.code)), codes);
  }
#endif
  static std::uint8_t map(std::uint8_t code) noexcept { return levels.code[code]; }
};
using iq4_codes = raised_levels<quant::iq4_levels, 7>;
using e2m1_codes = raised_levels<quant::e2m1_doubled, 4>;

/// `count` runs of 16 bytes, `Stride` bytes apart -> 32 codes each: low nibbles, then high nibbles.
template <class Levels, std::size_t Stride>
void split_nibbles(std::uint8_t const* bytes, std::size_t count, std::uint8_t* codes) noexcept {
  std::size_t b = 0;
#if defined(__AVX512BW__)
  __m512i const shift = _mm512_setr_epi32(0, 0, 0, 0, 4, 4, 4, 4, 0, 0, 0, 0, 4, 4, 4, 4);
  for (; b + 2 <= count; b += 2) {
    prefetch_ahead<2 * Stride>(bytes + b * Stride);
    __m512i const one = _mm512_broadcast_i32x4(load_nibbles(bytes + b * Stride));
    __m512i const two =
        _mm512_mask_broadcast_i32x4(one, 0xFF00, load_nibbles(bytes + (b + 1) * Stride));
    __m512i const split = _mm512_and_si512(_mm512_srlv_epi32(two, shift), _mm512_set1_epi8(15));
    _mm512_storeu_si512(codes + 32 * b, Levels::map(split));
  }
#endif
  for (; b < count; ++b) {
#if defined(__AVX2__)
    __m256i const twice = _mm256_broadcastsi128_si256(load_nibbles(bytes + b * Stride));
    __m256i const split =
        low_nibbles(_mm256_srlv_epi32(twice, _mm256_setr_epi32(0, 0, 0, 0, 4, 4, 4, 4)));
    store_codes(codes + 32 * b, Levels::map(split));
#else
    for (std::size_t i = 0; i < 16; ++i) {
      std::uint8_t const byte = bytes[b * Stride + i];
      codes[32 * b + i] = Levels::map(byte & 15U);
      codes[32 * b + i + 16] = Levels::map(byte >> 4U);
    }
#endif
  }
}

/// `count` runs of 16 bytes -> 32 codes each: element 2i in the low nibble of byte i.
template <class Levels>
void spread_nibbles(std::uint8_t const* bytes, std::size_t count, std::uint8_t* codes) noexcept {
  std::size_t b = 0;
#if defined(__AVX512BW__)
  for (; b + 2 <= count; b += 2) {
    prefetch_ahead<32>(bytes + 16 * b);
    __m512i const wide = _mm512_cvtepu8_epi16(load_bytes(bytes + 16 * b));
    __m512i const both = _mm512_or_si512(wide, _mm512_slli_epi16(wide, 4));
    _mm512_storeu_si512(codes + 32 * b, Levels::map(_mm512_and_si512(both, _mm512_set1_epi8(15))));
  }
#endif
  for (; b < count; ++b) {
#if defined(__AVX2__)
    __m256i const wide = _mm256_cvtepu8_epi16(load_nibbles(bytes + 16 * b));
    store_codes(codes + 32 * b,
                Levels::map(low_nibbles(_mm256_or_si256(wide, _mm256_slli_epi16(wide, 4)))));
#else
    for (std::size_t i = 0; i < 16; ++i) {
      codes[32 * b + 2 * i] = Levels::map(bytes[16 * b + i] & 15U);
      codes[32 * b + 2 * i + 1] = Levels::map(bytes[16 * b + i] >> 4U);
    }
#endif
  }
}

/// to[i] = factor * codes[i] for eight codes, signed or not.
template <class Code>
void scale_codes(float factor, Code const* codes, float* to) noexcept {
#if defined(__AVX2__)
  __m128i const bytes = _mm_loadl_epi64(reinterpret_cast<__m128i const*>(codes));
  __m256i const wide =
      std::is_signed_v<Code> ? _mm256_cvtepi8_epi32(bytes) : _mm256_cvtepu8_epi32(bytes);
  _mm256_storeu_ps(to, _mm256_mul_ps(_mm256_set1_ps(factor), _mm256_cvtepi32_ps(wide)));
#else
  for (std::size_t i = 0; i < 8; ++i) { to[i] = factor * static_cast<float>(codes[i]); }
#endif
}

#if defined(__AVX512F__)
/// Which byte of 64 that begin at a block goes where: the heads of `Covered` blocks of `Bytes`
/// bytes become dwords from number `First` on.
template <std::size_t Bytes, std::size_t Covered, std::size_t First>
struct head_positions {
  alignas(64) std::uint8_t index[64];
  constexpr head_positions() : index{} {
    for (std::size_t i = 0; i < 4 * Covered; ++i) {
      index[4 * First + i] = static_cast<std::uint8_t>(i / 4 * Bytes + i % 4);
    }
  }
};

/// The first four bytes of each of up to 16 blocks of `Bytes` bytes; zero past `count`.
template <std::size_t Bytes>
[[nodiscard]] inline __m512i gather_heads(void const* blocks, std::size_t count) noexcept {
#if defined(__AVX512VBMI__)
  // Where one load covers the heads of four blocks, a byte permutation puts each where it belongs.
  constexpr std::size_t covered = (64 - 4) / Bytes + 1;
  if constexpr (covered == 4) {
    __m512i heads = _mm512_setzero_si512();
    [&]<std::size_t... Group>(std::index_sequence<Group...>) {
      auto const take = [&]<std::size_t First>() {
        static constexpr head_positions<Bytes, covered, First> where{};
        constexpr __mmask64 destination = __mmask64{0xFFFF} << (4 * First);
        auto const* const at = static_cast<std::byte const*>(blocks) + First * Bytes;
        __m512i bytes;
        if (First + covered <= count) {
          bytes = _mm512_loadu_si512(at);
        } else if (First < count) {
          bytes = _mm512_maskz_loadu_epi8((__mmask64{1} << ((count - First) * Bytes)) - 1, at);
        } else {
          return;
        }
        heads =
            _mm512_mask_permutexvar_epi8(heads, destination, _mm512_load_si512(where.index), bytes);
      };
      (take.template operator()<Group * covered>(), ...);
    }(std::make_index_sequence<16 / covered>{});
    return heads;
  }
#endif
  __m512i const number = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  __m512i const at = _mm512_mullo_epi32(number, _mm512_set1_epi32(static_cast<int>(Bytes)));
  return _mm512_mask_i32gather_epi32(_mm512_setzero_si512(), f32x16::first(count), at, blocks, 1);
}
[[nodiscard]] inline f32x16 low_halves(__m512i words) noexcept {
  return {_mm512_cvtph_ps(_mm512_cvtepi32_epi16(words))};
}
#endif

#if defined(__AVX512F__)
/// `quant::e8m0_half_to_f32` of 16 codes.
[[nodiscard]] inline f32x16 e8m0_halves(__m512i code) noexcept {
  __m512i const normal = _mm512_slli_epi32(_mm512_sub_epi32(code, _mm512_set1_epi32(1)), 23);
  __m512i const small = _mm512_sllv_epi32(_mm512_set1_epi32(0x20'0000), code);
  __mmask16 const is_small = _mm512_cmplt_epu32_mask(code, _mm512_set1_epi32(2));
  return {_mm512_castsi512_ps(_mm512_mask_mov_epi32(normal, is_small, small))};
}
#endif

/// Blocks of 32 elements whose codes and factors are unpacked together: as many as a vector has
/// lanes.
inline constexpr std::size_t group_blocks = 16;

/// Calls unpack(first, count) for groups of at most `group_blocks` blocks.
template <class Unpack>
void for_each_group(std::size_t blocks, Unpack&& unpack) noexcept {
  std::size_t b = 0;
  for (; b + group_blocks <= blocks; b += group_blocks) { unpack(b, group_blocks); }
  if (b < blocks) { unpack(b, blocks - b); }
}

/// Scales of a group of blocks that begin with a binary16 scale.
template <class Block>
void unpack_scales(Block const* from, std::size_t count, float* scale) noexcept {
#if defined(__AVX512F__)
  low_halves(gather_heads<sizeof(Block)>(from, count)).store_first(scale, count);
#else
  for (std::size_t b = 0; b < count; ++b) { scale[b] = to_float(from[b].d); }
#endif
}

struct unpack_q8_0 : unpacker {
  using block = quant::q8_0;
  static constexpr int offset_shift = 7;
  static void unpack(encoded_run run, unpacked_run to) noexcept {
    for_each_group(run.count, [&](std::size_t first, std::size_t count) {
      block const* const from = run.as<block>() + first;
      flip_signs(from, count, to.codes + 32 * first);
      unpack_scales(from, count, to.scale + first);
    });
  }

 private:
  static void flip_signs(block const* from, std::size_t count, std::uint8_t* codes) noexcept {
    std::size_t b = 0;
#if defined(__AVX512F__)
    __m512i const flip = _mm512_set1_epi32(static_cast<int>(0x80808080U));
    auto const load = [&](std::size_t at) {
      return _mm256_loadu_si256(reinterpret_cast<__m256i const*>(from[at].qs));
    };
    for (; b + 2 <= count; b += 2) {
      prefetch_ahead<2 * sizeof(block)>(from + b);
      __m512i const two = _mm512_inserti64x4(_mm512_castsi256_si512(load(b)), load(b + 1), 1);
      _mm512_storeu_si512(codes + 32 * b, _mm512_xor_si512(two, flip));
    }
#endif
    for (; b < count; ++b) {
      for (std::size_t i = 0; i < 32; ++i) {
        codes[32 * b + i] = static_cast<std::uint8_t>(from[b].qs[i]) ^ 0x80U;
      }
    }
  }
};

struct unpack_q4_0 : unpacker {
  using block = quant::q4_0;
  static constexpr int offset_shift = 3;
  static void unpack(encoded_run run, unpacked_run to) noexcept {
    for_each_group(run.count, [&](std::size_t first, std::size_t count) {
      block const* const from = run.as<block>() + first;
      split_nibbles<plain_levels, sizeof(block)>(from->qs, count, to.codes + 32 * first);
      unpack_scales(from, count, to.scale + first);
    });
  }
};

struct unpack_q4_1 : unpacker {
  using block = quant::q4_1;
  static constexpr bool minimum = true;
  static void unpack(encoded_run run, unpacked_run to) noexcept {
    for_each_group(run.count, [&](std::size_t first, std::size_t count) {
      block const* const from = run.as<block>() + first;
      split_nibbles<plain_levels, sizeof(block)>(from->qs, count, to.codes + 32 * first);
#if defined(__AVX512F__)
      __m512i const heads = gather_heads<sizeof(block)>(from, count);
      low_halves(heads).store_first(to.scale + first, count);
      low_halves(_mm512_srli_epi32(heads, 16)).store_first(to.minimum + first, count);
#else
      for (std::size_t b = 0; b < count; ++b) {
        to.scale[first + b] = to_float(from[b].d);
        to.minimum[first + b] = to_float(from[b].m);
      }
#endif
    });
  }
};

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

struct unpack_iq4_nl : unpacker {
  using block = quant::iq4_nl;
  static constexpr int offset_shift = 7;
  static void unpack(encoded_run run, unpacked_run to) noexcept {
    for_each_group(run.count, [&](std::size_t first, std::size_t count) {
      block const* const from = run.as<block>() + first;
      split_nibbles<iq4_codes, sizeof(block)>(from->qs, count, to.codes + 32 * first);
      unpack_scales(from, count, to.scale + first);
    });
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

struct unpack_mxfp4 : unpacker {
  using block = quant::mxfp4;
  static constexpr int offset_shift = 4;
  static void unpack(encoded_run run, unpacked_run to) noexcept {
    for_each_group(run.count, [&](std::size_t first, std::size_t count) {
      block const* const from = run.as<block>() + first;
      split_nibbles<e2m1_codes, sizeof(block)>(from->qs, count, to.codes + 32 * first);
#if defined(__AVX512F__)
      __m512i const heads = gather_heads<sizeof(block)>(from, count);
      e8m0_halves(_mm512_and_si512(heads, _mm512_set1_epi32(255)))
          .store_first(to.scale + first, count);
#else
      for (std::size_t b = 0; b < count; ++b) { to.scale[first + b] = quant::e8m0_half_to_f32(from[b].e); }
#endif
    });
  }
};

/// Scales of a run that lie in another tensor. E8M0 bytes count as halves, for their codes are
/// doubled.
inline void unpack_outer_scales(encoded_run run, float* scale) noexcept {
  if (run.scale_type == quant_type::i8) {
    std::size_t b = 0;
#if defined(__AVX512F__)
    for (; b + 16 <= run.count; b += 16) {
      auto const* const codes = reinterpret_cast<__m128i const*>(run.scales + b);
      e8m0_halves(_mm512_cvtepu8_epi32(_mm_loadu_si128(codes))).store(scale + b);
    }
#endif
    for (; b < run.count; ++b) {
      scale[b] = quant::e8m0_half_to_f32(std::to_integer<std::uint8_t>(run.scales[b]));
    }
  } else if (run.scale_type == quant_type::f32) {
    std::memcpy(scale, run.scales, run.count * sizeof(float));
  } else {
    bool const brain = run.scale_type == quant_type::bf16;
    for (std::size_t b = 0; b < run.count; ++b) {
      std::uint16_t half = 0;
      std::memcpy(&half, run.scales + b * sizeof half, sizeof half);
      scale[b] = brain ? quant::bf16_to_f32(half) : quant::f16_to_f32(half);
    }
  }
}

struct unpack_int4_g32 : unpacker {
  using block = quant::int4_g32;
  static constexpr int offset_shift = 3;
  static constexpr bool outer_scales = true;
  static void unpack(encoded_run run, unpacked_run to) noexcept {
    spread_nibbles<plain_levels>(run.as<block>()->qs, run.count, to.codes);
    unpack_outer_scales(run, to.scale);
  }
};

struct unpack_mxfp4_packed : unpacker {
  using block = quant::mxfp4_packed;
  static constexpr int offset_shift = 4;
  static constexpr bool outer_scales = true;
  static void unpack(encoded_run run, unpacked_run to) noexcept {
    spread_nibbles<e2m1_codes>(run.as<block>()->qs, run.count, to.codes);
    unpack_outer_scales(run, to.scale);
  }
};

/// Calls `visit.template operator()<Unpacker>()` when `w` has an integer product, else `other()`.
template <class Visit, class Other>
decltype(auto) with_unpacker(matrix_view const& w, Visit&& visit, Other&& other) {
  if (w.multiplier != 1.0F || w.cols % block_cols != 0) { return other(); }
  bool const own_scales = w.grid == scale_grid::none;
  bool const group_scales = w.grid == scale_grid::per_group32;
  switch (w.type) {
    case quant_type::q8_0:
      return own_scales ? visit.template operator()<unpack_q8_0>() : other();
    case quant_type::q4_0:
      return own_scales ? visit.template operator()<unpack_q4_0>() : other();
    case quant_type::q4_1:
      return own_scales ? visit.template operator()<unpack_q4_1>() : other();
    case quant_type::q4_k:
      return own_scales ? visit.template operator()<unpack_q4_k>() : other();
    case quant_type::q5_k:
      return own_scales ? visit.template operator()<unpack_q5_k>() : other();
    case quant_type::q6_k:
      return own_scales ? visit.template operator()<unpack_q6_k>() : other();
    case quant_type::iq4_nl:
      return own_scales ? visit.template operator()<unpack_iq4_nl>() : other();
    case quant_type::iq4_xs:
      return own_scales ? visit.template operator()<unpack_iq4_xs>() : other();
    case quant_type::mxfp4:
      return own_scales ? visit.template operator()<unpack_mxfp4>() : other();
    case quant_type::int4_g32:
      return group_scales && w.scale_type != quant_type::i8
                 ? visit.template operator()<unpack_int4_g32>()
                 : other();
    case quant_type::mxfp4_packed:
      return group_scales && w.scale_type == quant_type::i8
                 ? visit.template operator()<unpack_mxfp4_packed>()
                 : other();
    default:
      return other();
  }
}

}  // namespace terrace::kernel::cpu::detail
