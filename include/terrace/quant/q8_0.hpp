// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/quant/block_format.hpp>
#include <terrace/quant/detail/fit.hpp>

#include <cmath>
#include <cstdint>

namespace terrace::quant {

/// 32 weights of 8 bits under one scale.
struct q8_0 {
  le_f16 d;
  std::int8_t qs[32];

  static constexpr quant_type type = quant_type::q8_0;
  static constexpr std::uint32_t elements = 32;
  static constexpr float max_magnitude = 65504.0F * 127;

  /// y[j] = d * qs[j]
  void decode(float* __restrict y) const noexcept {
    float const scale = d.value();
    for (int j = 0; j < 32; ++j) { y[j] = scale * static_cast<float>(qs[j]); }
  }

  /// The largest value gets code 127 or -127.
  [[nodiscard]] static q8_0 encode(float const* x) noexcept {
    float const scale = detail::round_to_f16(std::abs(detail::extreme_of<32>(x)) / 127);
    q8_0 block{.d = le_f16::of(scale), .qs = {}};
    if (scale == 0) { return block; }
    for (int j = 0; j < 32; ++j) {
      block.qs[j] = static_cast<std::int8_t>(detail::nearest(x[j] / scale, -127, 127));
    }
    return block;
  }
};
static_assert(encodable_format<q8_0>);

}  // namespace terrace::quant
