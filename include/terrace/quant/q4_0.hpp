// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/quant/block_format.hpp>
#include <terrace/quant/detail/fit.hpp>

#include <cstdint>

namespace terrace::quant {

/// 32 weights of 4 bits around 8 under one scale.
struct q4_0 {
  le_f16 d;
  std::uint8_t qs[16];  ///< byte j: element j in the low nibble, element j + 16 in the high one

  static constexpr quant_type type = quant_type::q4_0;
  static constexpr std::uint32_t elements = 32;
  static constexpr float max_magnitude = 65504.0F * 7;

  /// y[j] = d * (nibble - 8)
  void decode(float* __restrict y) const noexcept {
    float const scale = d.value();
    for (int j = 0; j < 16; ++j) { y[j] = scale * static_cast<float>((qs[j] & 15) - 8); }
    for (int j = 0; j < 16; ++j) { y[j + 16] = scale * static_cast<float>((qs[j] >> 4) - 8); }
  }

  /// Tries scales that put the largest value on levels 5 to 9 of either sign.
  [[nodiscard]] static q4_0 encode(float const* x) noexcept {
    constexpr detail::code_range codes{
        .low = -8, .high = 7, .nearest_level = 5, .farthest_level = 9, .step = 0.25F};
    float const scale = detail::fit_scale<32>(x, codes, detail::round_to_f16);
    q4_0 block{.d = le_f16::of(scale), .qs = {}};
    auto const code = [&](float value) {
      return scale == 0 ? 8 : static_cast<int>(detail::nearest(value / scale, -8, 7)) + 8;
    };
    for (int j = 0; j < 16; ++j) {
      block.qs[j] = static_cast<std::uint8_t>(code(x[j]) | code(x[j + 16]) << 4);
    }
    return block;
  }
};
static_assert(encodable_format<q4_0>);

}  // namespace terrace::quant
