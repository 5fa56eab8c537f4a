// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/quant/block_format.hpp>

#include <cstdint>

namespace terrace::quant {

/// 16 levels, denser around zero, that 4-bit codes of `iq4_nl` and `iq4_xs` select.
inline constexpr std::int8_t iq4_levels[16] = {
    -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

/// 32 weights of 4 bits on uneven levels under one scale.
struct iq4_nl {
  le_f16 d;
  std::uint8_t qs[16];  ///< byte j: element j in the low nibble, element j + 16 in the high one

  static constexpr quant_type type = quant_type::iq4_nl;
  static constexpr std::uint32_t elements = 32;

  /// y[j] = d * iq4_levels[nibble]
  void decode(float* __restrict y) const noexcept {
    float const scale = d.value();
    for (int j = 0; j < 16; ++j) { y[j] = scale * static_cast<float>(iq4_levels[qs[j] & 15]); }
    for (int j = 0; j < 16; ++j) { y[j + 16] = scale * static_cast<float>(iq4_levels[qs[j] >> 4]); }
  }
};
static_assert(block_format<iq4_nl>);

}  // namespace terrace::quant
