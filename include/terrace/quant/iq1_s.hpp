// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/quant/block_format.hpp>
#include <terrace/quant/iq_grids.hpp>

#include <cstdint>

namespace terrace::quant {

/// 256 weights in ternary vectors of 8 from a codebook of 2048, shifted by an eighth; a 3-bit scale
/// for 32.
struct iq1_s {
  le_f16 d;
  std::uint8_t qs[32];  ///< per 8 elements: lower 8 bits of the codebook row
  le_u16 qh[8];  ///< per 32 elements: 4 times 3 upper row bits, 3 scale bits, sign of the shift

  static constexpr quant_type type = quant_type::iq1_s;
  static constexpr std::uint32_t elements = 256;

  /// y = d * (2 * scale + 1) * (row[k] +- 0.125)
  void decode(float* y) const noexcept {
    float const super = d.value();
    for (unsigned i = 0; i < 32; ++i, y += 8) {
      unsigned const word = qh[i / 4].value();
      unsigned const row = qs[i] | (((word >> (3U * (i % 4U))) & 7U) << 8U);
      float const scale =
          super * static_cast<float>(static_cast<int>(2U * ((word >> 12U) & 7U) + 1U));
      write_shifted(iq1_s_grid[row], (word & 0x8000U) != 0 ? -0.125F : 0.125F, scale, y);
    }
  }
};
static_assert(block_format<iq1_s>);

}  // namespace terrace::quant
