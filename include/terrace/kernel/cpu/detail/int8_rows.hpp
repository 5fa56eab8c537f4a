// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/kernel/cpu/detail/f32x16.hpp>

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace terrace::kernel::cpu::detail {

/// Elements that share one activation scale; every fast weight type is a run of such blocks.
inline constexpr std::size_t block_cols = 32;
/// Blocks that one vector of partial sums covers: a product keeps four partial sums, one for each
/// block number modulo 4.
inline constexpr std::size_t block_lanes = 4;

/// Bits of the largest magnitude among 32 values; a value that is not finite counts as larger.
[[nodiscard]] inline std::uint32_t largest_magnitude_bits(float const* x) noexcept {
#if defined(__AVX512F__)
  __m512i const magnitude = _mm512_set1_epi32(0x7FFF'FFFF);
  __m512i const low = _mm512_and_si512(_mm512_loadu_si512(x), magnitude);
  __m512i const high = _mm512_and_si512(_mm512_loadu_si512(x + 16), magnitude);
  return _mm512_reduce_max_epu32(_mm512_max_epu32(low, high));
#else
  std::uint32_t largest = 0;
  for (std::size_t i = 0; i < block_cols; ++i) {
    std::uint32_t const bits = std::bit_cast<std::uint32_t>(x[i]) & 0x7FFF'FFFFU;
    largest = bits > largest ? bits : largest;
  }
  return largest;
#endif
}

/// code[i] = x[i] * factor to nearest even for 16 values of magnitude at most 127; returns their
/// sum.
inline std::int32_t round_codes(float const* x, float factor, std::int8_t* code) noexcept {
#if defined(__AVX512F__)
  __m512i const rounded =
      _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(x), _mm512_set1_ps(factor)));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(code), _mm512_cvtepi32_epi8(rounded));
  return _mm512_reduce_add_epi32(rounded);
#else
  std::int32_t sum = 0;
  for (std::size_t i = 0; i < 16; ++i) {
    code[i] = static_cast<std::int8_t>(std::nearbyint(x[i] * factor));
    sum += code[i];
  }
  return sum;
#endif
}

/// Vectors in 8-bit form, token by token: x[i] is about scale[i / 32] * code[i], |code| <= 127.
///
/// Shapes: codes [tokens, pitch()]; the others [tokens, blocks_pitch]. Pitches are whole groups of four
///         blocks, zero filled.
struct int8_rows {
  std::size_t blocks = 0;  ///< blocks a row that hold elements
  std::size_t blocks_pitch = 0;
  std::vector<std::int8_t> codes;
  std::vector<float> scale;
  std::vector<float> sum;              ///< scale * code_sum
  std::vector<std::int32_t> code_sum;  ///< of a block's codes
  std::vector<std::int32_t> low_sum;   ///< of its first 16

  void resize(std::size_t tokens, std::size_t cols) {
    std::size_t const old_size = scale.size();
    std::size_t const old_blocks = blocks;
    blocks = cols / block_cols;
    blocks_pitch = (blocks + block_lanes - 1) / block_lanes * block_lanes;
    std::size_t const size = tokens * blocks_pitch;
    if (size == old_size && blocks == old_blocks) {
      return;
    }  // what lies between rows is zero still
    codes.assign(size * block_cols, 0);
    scale.assign(size, 0.0F);
    sum.assign(size, 0.0F);
    code_sum.assign(size, 0);
    low_sum.assign(size, 0);
  }
  [[nodiscard]] std::size_t pitch() const noexcept { return blocks_pitch * block_cols; }

  /// Encodes x [blocks * 32] as row `token`. A block with a value that is not finite gets scale
  /// NaN, so that every product with it is NaN; a block whose scale is below the normal range is
  /// zero.
  void encode(std::size_t token, float const* x) noexcept {
    for (std::size_t b = 0; b < blocks; ++b) {
      encode_block(token * blocks_pitch + b, x + b * block_cols);
    }
  }

 private:
  void encode_block(std::size_t at, float const* x) noexcept {
    std::uint32_t const bits = largest_magnitude_bits(x);
    bool const finite = bits < 0x7F80'0000U;
    float const unit = std::bit_cast<float>(bits) / 127.0F;
    std::int8_t* const code = codes.data() + at * block_cols;
    std::int32_t low = 0;
    std::int32_t high = 0;
    if (finite && unit >= std::numeric_limits<float>::min()) {
      float const inverse = 127.0F / std::bit_cast<float>(bits);
      low = round_codes(x, inverse, code);
      high = round_codes(x + 16, inverse, code + 16);
      scale[at] = unit;
    } else {
      for (std::size_t i = 0; i < block_cols; ++i) { code[i] = 0; }
      scale[at] = finite ? 0.0F : std::numeric_limits<float>::quiet_NaN();
    }
    code_sum[at] = low + high;
    low_sum[at] = low;
    sum[at] = scale[at] * static_cast<float>(code_sum[at]);
  }
};

}  // namespace terrace::kernel::cpu::detail
