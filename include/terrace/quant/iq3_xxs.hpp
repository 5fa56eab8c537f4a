// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/quant/block_format.hpp>
#include <terrace/quant/iq_grids.hpp>

#include <array>
#include <cstdint>

namespace terrace::quant {

/// 256 weights in vectors of 4 from a codebook of 256, with signs of even parity over 8; a 4-bit
/// scale for 32.
struct iq3_xxs {
  le_f16 d;
  std::uint8_t qs[64];        ///< one codebook row for each 4 elements
  le_u32 signs_and_scale[8];  ///< per 32 elements: 4 times 7 sign bits, then the scale

  static constexpr quant_type type = quant_type::iq3_xxs;
  static constexpr std::uint32_t elements = 256;

  /// y = d * (0.5 + scale) / 2 * row[k] * sign
  void decode(float* __restrict y) const noexcept {
    float const super = d.value();
    std::array<std::uint64_t, 32> rows;
    std::array<float, 8> scales;
    for (unsigned ib = 0; ib < 8; ++ib) {
      std::uint32_t const word = signs_and_scale[ib].value();
      scales[ib] = super * (0.5F + static_cast<float>(word >> 28U)) * 0.5F;
      for (unsigned l = 0; l < 4; ++l) {
        std::uint64_t const pair = iq3_xxs_grid[qs[8 * ib + 2 * l]] |
                                   std::uint64_t{iq3_xxs_grid[qs[8 * ib + 2 * l + 1]]} << 32U;
        rows[4 * ib + l] = with_signs(pair, even_signs((word >> (7U * l)) & 127U));
      }
    }
    write_scaled(rows, 0, scales, y);
  }
};
static_assert(block_format<iq3_xxs>);

}  // namespace terrace::quant
