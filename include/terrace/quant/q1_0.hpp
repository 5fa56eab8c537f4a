// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/quant/block_format.hpp>

#include <cstdint>

namespace terrace::quant {

/// 128 signs under one scale.
struct q1_0 {
  le_f16 d;
  std::uint8_t bits[16];  ///< bit j & 7 of byte j / 8: 1 for +d, 0 for -d

  static constexpr quant_type type = quant_type::q1_0;
  static constexpr std::uint32_t elements = 128;

  void decode(float* y) const noexcept {
    float const scale = d.value();
    for (unsigned i = 0; i < 16; ++i) {
      for (unsigned k = 0; k < 8; ++k) {
        y[8 * i + k] = ((bits[i] >> k) & 1U) != 0 ? scale : -scale;
      }
    }
  }
};
static_assert(block_format<q1_0>);

}  // namespace terrace::quant
