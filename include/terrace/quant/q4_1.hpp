// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/quant/block_format.hpp>
#include <terrace/quant/detail/fit.hpp>

#include <cstdint>

namespace terrace::quant {

/// 32 weights of 4 bits under one scale and one offset.
struct q4_1 {
  le_f16 d;
  le_f16 m;
  std::uint8_t qs[16];  ///< byte j: element j in the low nibble, element j + 16 in the high one

  static constexpr quant_type type = quant_type::q4_1;
  static constexpr std::uint32_t elements = 32;
  static constexpr float max_magnitude = 65504.0F;

  /// y[j] = d * nibble + m
  void decode(float* __restrict y) const noexcept {
    float const scale = d.value();
    float const offset = m.value();
    for (int j = 0; j < 16; ++j) { y[j] = scale * static_cast<float>(qs[j] & 15) + offset; }
    for (int j = 0; j < 16; ++j) { y[j + 16] = scale * static_cast<float>(qs[j] >> 4) + offset; }
  }

  [[nodiscard]] static q4_1 encode(float const* x) noexcept {
    auto const fit = detail::fit_affine<32>(x, 15, true, detail::round_to_f16);
    q4_1 block{.d = le_f16::of(fit.scale), .m = le_f16::of(-fit.minimum), .qs = {}};
    auto const code = [&](float value) {
      return fit.scale == 0
                 ? 0
                 : static_cast<int>(detail::nearest((value + fit.minimum) / fit.scale, 0, 15));
    };
    for (int j = 0; j < 16; ++j) {
      block.qs[j] = static_cast<std::uint8_t>(code(x[j]) | code(x[j + 16]) << 4);
    }
    return block;
  }
};
static_assert(encodable_format<q4_1>);

}  // namespace terrace::quant
