// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/quant/block_format.hpp>
#include <terrace/quant/iq_grids.hpp>

#include <cstdint>

namespace terrace::quant {

/// 256 weights in vectors of 8 from a codebook of 512, with signs of even parity; a 4-bit scale
/// for 16.
struct iq2_xs {
  le_f16 d;
  le_u16 qs[32];           ///< per 8 elements: 9 bits of codebook row, 7 sign bits
  std::uint8_t scales[8];  ///< nibble k: scale of elements 16k to 16k + 15

  static constexpr quant_type type = quant_type::iq2_xs;
  static constexpr std::uint32_t elements = 256;

  /// y = d * (0.5 + scale) / 4 * row[k] * sign
  void decode(float* y) const noexcept {
    float const super = d.value();
    for (unsigned i = 0; i < 32; ++i, y += 8) {
      unsigned const word = qs[i].value();
      unsigned const code = (scales[i / 4] >> (4U * ((i / 2U) & 1U))) & 15U;
      float const scale = super * (0.5F + static_cast<float>(code)) * 0.25F;
      write_signed(iq2_xs_grid[word & 511U], even_signs(word >> 9U), scale, y);
    }
  }
};
static_assert(block_format<iq2_xs>);

}  // namespace terrace::quant
