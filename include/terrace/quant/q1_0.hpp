// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/quant/block_format.hpp>

#include <cmath>
#include <cstdint>

namespace terrace::quant {

/// 128 signs under one scale.
struct q1_0 {
  le_f16 d;
  std::uint8_t bits[16];  ///< bit j & 7 of byte j / 8: 1 for +d, 0 for -d

  static constexpr quant_type type = quant_type::q1_0;
  static constexpr std::uint32_t elements = 128;
  static constexpr float max_magnitude = 65504.0F;

  void decode(float* __restrict y) const noexcept {
    float const scale = d.value();
    for (unsigned i = 0; i < 16; ++i) {
      for (unsigned k = 0; k < 8; ++k) {
        y[8 * i + k] = ((bits[i] >> k) & 1U) != 0 ? scale : -scale;
      }
    }
  }

  /// The scale is the mean magnitude, which leaves the least squared error.
  [[nodiscard]] static q1_0 encode(float const* x) noexcept {
    double sum = 0;
    for (int i = 0; i < 128; ++i) { sum += std::abs(x[i]); }
    q1_0 block{.d = le_f16::of(static_cast<float>(sum / 128)), .bits = {}};
    for (unsigned i = 0; i < 128; ++i) {
      unsigned const positive = x[i] >= 0 ? 1U : 0U;
      block.bits[i / 8] = static_cast<std::uint8_t>(block.bits[i / 8] | positive << (i % 8));
    }
    return block;
  }
};
static_assert(encodable_format<q1_0>);

}  // namespace terrace::quant
