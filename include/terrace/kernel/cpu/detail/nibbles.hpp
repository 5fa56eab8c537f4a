// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/kernel/cpu/detail/intrinsics.hpp>
#include <terrace/quant/half.hpp>
#include <terrace/quant/iq4_nl.hpp>

#include <cstddef>
#include <cstdint>

/// Four-bit codes -> bytes: the loops that compilers do not turn into the few instructions they
/// need.
namespace terrace::kernel::cpu::detail {

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

}  // namespace terrace::kernel::cpu::detail
