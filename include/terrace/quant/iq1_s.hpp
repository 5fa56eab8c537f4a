// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/quant/block_format.hpp>
#include <terrace/quant/iq_grids.hpp>

#include <array>
#include <cstdint>

namespace terrace::quant {

/// What `iq1_eighths` adds to each element to keep bytes from borrowing.
inline constexpr int iq1_bias = 16;
/// The elements of a row of ternary digits, shifted by an eighth down or up, in eighths plus
/// `iq1_bias`.
[[nodiscard]] constexpr std::uint64_t iq1_eighths(std::uint64_t digits, bool down) noexcept {
  return (digits << 3U) + (down ? 0x0707'0707'0707'0707ULL : 0x0909'0909'0909'0909ULL);
}

/// 256 weights in ternary vectors of 8 from a codebook of 2048, shifted by an eighth; a 3-bit scale
/// for 32.
struct iq1_s {
  le_f16 d;
  std::uint8_t qs[32];  ///< per 8 elements: lower 8 bits of the codebook row
  le_u16 qh[8];  ///< per 32 elements: 4 times 3 upper row bits, 3 scale bits, sign of the shift

  static constexpr quant_type type = quant_type::iq1_s;
  static constexpr std::uint32_t elements = 256;

  /// y = d * (2 * scale + 1) * (row[k] +- 0.125)
  void decode(float* __restrict y) const noexcept {
    float const super = d.value();
    std::array<std::uint64_t, 32> rows;
    std::array<float, 8> scales;
    for (unsigned ib = 0; ib < 8; ++ib) {
      unsigned const word = qh[ib].value();
      auto const odd = static_cast<int>(2U * ((word >> 12U) & 7U) + 1U);
      scales[ib] = super * static_cast<float>(odd) * 0.125F;
      for (unsigned l = 0; l < 4; ++l) {
        unsigned const row = qs[4 * ib + l] | (((word >> (3U * l)) & 7U) << 8U);
        rows[4 * ib + l] = iq1_eighths(iq1_s_grid[row], (word & 0x8000U) != 0);
      }
    }
    write_scaled(rows, iq1_bias, scales, y);
  }
};
static_assert(block_format<iq1_s>);

}  // namespace terrace::quant
