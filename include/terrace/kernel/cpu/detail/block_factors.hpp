// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/kernel/cpu/detail/f32x16.hpp>
#include <terrace/kernel/cpu/detail/intrinsics.hpp>
#include <terrace/quant/block_format.hpp>
#include <terrace/quant/half.hpp>

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

/// Scales as blocks hold them -> float32, many at a time.
namespace terrace::kernel::cpu::detail {

[[nodiscard]] inline float to_float(quant::le_f16 half) noexcept {
#if defined(__F16C__)
  return _cvtsh_ss(half.bits.value());
#else
  return half.value();
#endif
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

/// Scales of a group of blocks that begin with a binary16 scale.
template <class Block>
void unpack_scales(Block const* from, std::size_t count, float* scale) noexcept {
#if defined(__AVX512F__)
  low_halves(gather_heads<sizeof(Block)>(from, count)).store_first(scale, count);
#else
  for (std::size_t b = 0; b < count; ++b) { scale[b] = to_float(from[b].d); }
#endif
}

}  // namespace terrace::kernel::cpu::detail
