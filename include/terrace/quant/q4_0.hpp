// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/quant/block_format.hpp>

#include <cstdint>

namespace terrace::quant {

/// 32 weights of 4 bits around 8 under one scale.
struct q4_0 {
  le_f16 d;
  std::uint8_t qs[16];  ///< byte j: element j in the low nibble, element j + 16 in the high one

  static constexpr quant_type type = quant_type::q4_0;
  static constexpr std::uint32_t elements = 32;

  /// y[j] = d * (nibble - 8)
  void decode(float* y) const noexcept {
    float const scale = d.value();
    for (int j = 0; j < 16; ++j) {
      y[j] = scale * static_cast<float>((qs[j] & 15) - 8);
      y[j + 16] = scale * static_cast<float>((qs[j] >> 4) - 8);
    }
  }
};
static_assert(block_format<q4_0>);

}  // namespace terrace::quant
