// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/quant/block_format.hpp>
#include <terrace/quant/iq_grids.hpp>

#include <array>
#include <cstdint>

namespace terrace::quant {

/// 256 weights in vectors of 8 from a codebook of 1024, with free signs; a 4-bit scale for 16.
struct iq2_s {
  le_f16 d;
  std::uint8_t qs[32];     ///< per 8 elements: lower 8 bits of the codebook row
  std::uint8_t signs[32];  ///< per 8 elements: bit k set when element k is negative
  std::uint8_t qh[8];      ///< per 8 elements: upper 2 bits of the row
  std::uint8_t scales[8];  ///< nibble k: scale of elements 16k to 16k + 15

  static constexpr quant_type type = quant_type::iq2_s;
  static constexpr std::uint32_t elements = 256;

  /// y = d * (0.5 + scale) / 4 * row[k] * sign
  void decode(float* __restrict y) const noexcept {
    float const super = d.value();
    std::array<std::uint64_t, 32> rows;
    for (unsigned i = 0; i < 32; ++i) {
      unsigned const row = qs[i] | (((qh[i / 4] >> (2U * (i % 4U))) & 3U) << 8U);
      rows[i] = with_signs(iq2_s_grid[row], signs[i]);
    }
    std::array<float, 16> group;
    for (unsigned k = 0; k < 16; ++k) {
      unsigned const code = (scales[k / 2] >> (4U * (k & 1U))) & 15U;
      group[k] = super * (0.5F + static_cast<float>(code)) * 0.25F;
    }
    write_scaled(rows, 0, group, y);
  }
};
static_assert(block_format<iq2_s>);

}  // namespace terrace::quant
