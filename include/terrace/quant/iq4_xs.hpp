// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/quant/block_format.hpp>
#include <terrace/quant/iq4_nl.hpp>

#include <cstdint>

namespace terrace::quant {

/// 256 weights on the levels of `iq4_nl`, in 8 sub-blocks of 32 with 6-bit scales around 32.
struct iq4_xs {
  le_f16 d;
  le_u16 scales_h;           ///< bits 2j, 2j+1: upper bits of scale j
  std::uint8_t scales_l[4];  ///< nibble j: lower bits of scale j
  std::uint8_t qs[128];      ///< 16 bytes a sub-block; byte i: element i low, element i + 16 high

  static constexpr quant_type type = quant_type::iq4_xs;
  static constexpr std::uint32_t elements = 256;

  /// y = d * (scale - 32) * iq4_levels[nibble]
  void decode(float* __restrict y) const noexcept {
    float const super = d.value();
    unsigned const high = scales_h.value();
    for (unsigned j = 0; j < 8; ++j) {
      unsigned const low = (scales_l[j / 2] >> (4U * (j & 1U))) & 15U;
      int const code = static_cast<int>(low | (((high >> (2U * j)) & 3U) << 4U));
      float const scale = super * static_cast<float>(code - 32);
      for (unsigned i = 0; i < 16; ++i) {
        y[32 * j + i] = scale * static_cast<float>(iq4_levels[qs[16 * j + i] & 15]);
        y[32 * j + i + 16] = scale * static_cast<float>(iq4_levels[qs[16 * j + i] >> 4]);
      }
    }
  }
};
static_assert(block_format<iq4_xs>);

}  // namespace terrace::quant
