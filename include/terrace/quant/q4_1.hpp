// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/quant/block_format.hpp>

#include <cstdint>

namespace terrace::quant {

/// 32 weights of 4 bits under one scale and one offset.
struct q4_1 {
  le_f16 d;
  le_f16 m;
  std::uint8_t qs[16];  ///< byte j: element j in the low nibble, element j + 16 in the high one

  static constexpr quant_type type = quant_type::q4_1;
  static constexpr std::uint32_t elements = 32;

  /// y[j] = d * nibble + m
  void decode(float* y) const noexcept {
    float const scale = d.value();
    float const offset = m.value();
    for (int j = 0; j < 16; ++j) {
      y[j] = scale * static_cast<float>(qs[j] & 15) + offset;
      y[j + 16] = scale * static_cast<float>(qs[j] >> 4) + offset;
    }
  }
};
static_assert(block_format<q4_1>);

}  // namespace terrace::quant
