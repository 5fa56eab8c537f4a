// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/quant/block_format.hpp>
#include <terrace/quant/detail/fit.hpp>

#include <cstdint>

namespace terrace::quant {

/// 64 weights of 2 bits around 1 under one scale.
struct q2_0 {
  le_f16 d;
  std::uint8_t qs[16];  ///< four consecutive elements a byte, lowest bits first

  static constexpr quant_type type = quant_type::q2_0;
  static constexpr std::uint32_t elements = 64;
  static constexpr float max_magnitude = 65504.0F;

  /// y = d * (q - 1)
  void decode(float* __restrict y) const noexcept {
    float const scale = d.value();
    for (unsigned i = 0; i < 16; ++i) {
      for (unsigned k = 0; k < 4; ++k) {
        y[4 * i + k] = scale * static_cast<float>(static_cast<int>((qs[i] >> (2U * k)) & 3U) - 1);
      }
    }
  }

  /// Writes the codes 0 to 2 only, which are -1, 0 and 1.
  [[nodiscard]] static q2_0 encode(float const* x) noexcept {
    float const scale = detail::fit_scale<64>(x, detail::ternary_codes, detail::round_to_f16);
    q2_0 block{.d = le_f16::of(scale), .qs = {}};
    for (unsigned i = 0; i < 64; ++i) {
      float const code = scale == 0 ? 0.0F : detail::nearest(x[i] / scale, -1, 1);
      auto const bits = static_cast<unsigned>(static_cast<int>(code) + 1);
      block.qs[i / 4] = static_cast<std::uint8_t>(block.qs[i / 4] | bits << (2U * (i % 4)));
    }
    return block;
  }
};
static_assert(encodable_format<q2_0>);

}  // namespace terrace::quant
