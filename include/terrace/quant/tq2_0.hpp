// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/quant/block_format.hpp>
#include <terrace/quant/detail/fit.hpp>

#include <cstdint>

namespace terrace::quant {

/// 256 ternary weights of 2 bits under one scale.
struct tq2_0 {
  std::uint8_t qs[64];  ///< bits 2l, 2l+1 of byte 32h + i: element 128h + 32l + i
  le_f16 d;

  static constexpr quant_type type = quant_type::tq2_0;
  static constexpr std::uint32_t elements = 256;
  static constexpr float max_magnitude = 65504.0F;

  /// y = d * (q - 1)
  void decode(float* __restrict y) const noexcept {
    float const scale = d.value();
    for (unsigned h = 0; h < 2; ++h) {
      for (unsigned l = 0; l < 4; ++l) {
        for (unsigned i = 0; i < 32; ++i) {
          int const code = static_cast<int>((qs[32 * h + i] >> (2U * l)) & 3U);
          y[128 * h + 32 * l + i] = scale * static_cast<float>(code - 1);
        }
      }
    }
  }

  [[nodiscard]] static tq2_0 encode(float const* x) noexcept {
    float const scale = detail::fit_scale<256>(x, detail::ternary_codes, detail::round_to_f16);
    tq2_0 block{.qs = {}, .d = le_f16::of(scale)};
    for (unsigned i = 0; i < 256; ++i) {
      float const code = scale == 0 ? 0.0F : detail::nearest(x[i] / scale, -1, 1);
      auto const bits = static_cast<unsigned>(static_cast<int>(code) + 1);
      std::uint8_t& to = block.qs[32 * (i / 128) + i % 32];
      to = static_cast<std::uint8_t>(to | bits << (2U * (i / 32 % 4)));
    }
    return block;
  }
};
static_assert(encodable_format<tq2_0>);

}  // namespace terrace::quant
