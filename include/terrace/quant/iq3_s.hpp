// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/quant/block_format.hpp>
#include <terrace/quant/iq_grids.hpp>

#include <array>
#include <cstdint>

namespace terrace::quant {

/// 256 weights in vectors of 4 from a codebook of 512, with free signs; a 4-bit scale for 32.
struct iq3_s {
  le_f16 d;
  std::uint8_t qs[64];     ///< per 4 elements: lower 8 bits of the codebook row
  std::uint8_t qh[8];      ///< bit t & 7 of byte t / 8: upper bit of row t
  std::uint8_t signs[32];  ///< per 8 elements: bit k set when element k is negative
  std::uint8_t scales[4];  ///< nibble k: scale of elements 32k to 32k + 31

  static constexpr quant_type type = quant_type::iq3_s;
  static constexpr std::uint32_t elements = 256;

  /// y = d * (1 + 2 * scale) * row[k] * sign
  void decode(float* __restrict y) const noexcept {
    float const super = d.value();
    std::array<std::uint64_t, 32> rows;
    std::array<float, 8> group;
    for (unsigned k = 0; k < 8; ++k) {
      unsigned const code = (scales[k / 2] >> (4U * (k & 1U))) & 15U;
      group[k] = super * static_cast<float>(static_cast<int>(1U + 2U * code));
      for (unsigned l = 0; l < 4; ++l) {
        unsigned const first = qs[8 * k + 2 * l] | (((qh[k] >> (2U * l)) & 1U) << 8U);
        unsigned const second = qs[8 * k + 2 * l + 1] | (((qh[k] >> (2U * l + 1U)) & 1U) << 8U);
        std::uint64_t const pair = iq3_s_grid[first] | std::uint64_t{iq3_s_grid[second]} << 32U;
        rows[4 * k + l] = with_signs(pair, signs[4 * k + l]);
      }
    }
    write_scaled(rows, 0, group, y);
  }
};
static_assert(block_format<iq3_s>);

}  // namespace terrace::quant
