// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/quant/block_format.hpp>
#include <terrace/quant/iq_grids.hpp>

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
  void decode(float* y) const noexcept {
    float const super = d.value();
    for (unsigned t = 0; t < 64; ++t, y += 4) {
      unsigned const row = qs[t] | (((qh[t / 8] >> (t % 8U)) & 1U) << 8U);
      unsigned const code = (scales[t / 16] >> (4U * ((t / 8U) & 1U))) & 15U;
      float const scale = super * static_cast<float>(static_cast<int>(1U + 2U * code));
      write_signed(
          iq3_s_grid[row], static_cast<unsigned>(signs[t / 2]) >> (4U * (t & 1U)), scale, y);
    }
  }
};
static_assert(block_format<iq3_s>);

}  // namespace terrace::quant
