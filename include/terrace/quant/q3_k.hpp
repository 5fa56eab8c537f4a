// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/quant/block_format.hpp>

#include <cstdint>

namespace terrace::quant {

/// 256 weights of 3 bits around 4 in 16 groups of 16, with 6-bit scales around 32.
struct q3_k {
  std::uint8_t
      hmask[32];        ///< bit 4h + s of byte 16g + i: third bit of element i of group 8h + 2s + g
  std::uint8_t qs[64];  ///< bits 2s, 2s+1 of byte 32h + 16g + i: lower two bits of that element
  std::uint8_t scales[12];  ///< 16 low nibbles in the first 8 bytes, then 16 times 2 high bits
  le_f16 d;

  static constexpr quant_type type = quant_type::q3_k;
  static constexpr std::uint32_t elements = 256;

  /// Scale of group k, -32 to 31.
  [[nodiscard]] int scale(unsigned k) const noexcept {
    unsigned const low = (scales[k % 8] >> (4U * (k / 8U))) & 15U;
    unsigned const high = (scales[8 + k % 4] >> (2U * (k / 4U))) & 3U;
    return static_cast<int>(low | (high << 4U)) - 32;
  }

  /// y = d * scale * (q - 4)
  void decode(float* y) const noexcept {
    float const super = d.value();
    for (unsigned k = 0; k < 16; ++k) {
      unsigned const half = k / 8U;
      unsigned const step = (k / 2U) & 3U;
      std::uint8_t const* const low = qs + 32 * half + 16 * (k & 1U);
      std::uint8_t const* const high = hmask + 16 * (k & 1U);
      float const group = super * static_cast<float>(scale(k));
      for (unsigned i = 0; i < 16; ++i) {
        unsigned const code =
            ((low[i] >> (2U * step)) & 3U) | (((high[i] >> (4U * half + step)) & 1U) << 2U);
        y[16 * k + i] = group * static_cast<float>(static_cast<int>(code) - 4);
      }
    }
  }
};
static_assert(block_format<q3_k>);

}  // namespace terrace::quant
