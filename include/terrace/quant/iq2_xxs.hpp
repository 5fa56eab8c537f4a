// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/quant/block_format.hpp>
#include <terrace/quant/iq_grids.hpp>

#include <array>
#include <cstdint>

namespace terrace::quant {

/// 256 weights in vectors of 8 from a codebook of 256, with signs of even parity; a 4-bit scale
/// for 32.
struct iq2_xxs {
  struct group {
    std::uint8_t index[4];   ///< one codebook row for each 8 elements
    le_u32 signs_and_scale;  ///< 4 times 7 sign bits, then the scale
  };
  le_f16 d;
  group groups[8];

  static constexpr quant_type type = quant_type::iq2_xxs;
  static constexpr std::uint32_t elements = 256;

  /// y = d * (0.5 + scale) / 4 * row[k] * sign
  void decode(float* __restrict y) const noexcept {
    float const super = d.value();
    std::array<std::uint64_t, 32> rows;
    std::array<float, 8> scales;
    for (unsigned ib = 0; ib < 8; ++ib) {
      std::uint32_t const word = groups[ib].signs_and_scale.value();
      scales[ib] = super * (0.5F + static_cast<float>(word >> 28U)) * 0.25F;
      for (unsigned l = 0; l < 4; ++l) {
        unsigned const signs = even_signs((word >> (7U * l)) & 127U);
        rows[4 * ib + l] = with_signs(iq2_xxs_grid[groups[ib].index[l]], signs);
      }
    }
    write_scaled(rows, 0, scales, y);
  }
};
static_assert(block_format<iq2_xxs>);

}  // namespace terrace::quant
