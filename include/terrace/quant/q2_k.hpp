// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/quant/block_format.hpp>
#include <terrace/quant/detail/k_fit.hpp>

#include <cstdint>

namespace terrace::quant {

/// 256 weights of 2 bits in 16 groups of 16, each with a 4-bit scale and a 4-bit minimum.
struct q2_k {
  std::uint8_t scales[16];  ///< group k: scale in the low nibble, minimum in the high one
  std::uint8_t qs[64];      ///< bits 2s, 2s+1 of byte 32h + 16g + i: element i of group 8h + 2s + g
  le_f16 d;
  le_f16 dmin;

  static constexpr quant_type type = quant_type::q2_k;
  static constexpr std::uint32_t elements = 256;
  static constexpr float max_magnitude = 65504.0F * 15;

  /// y = d * scale * q - dmin * minimum
  void decode(float* __restrict y) const noexcept {
    float const super = d.value();
    float const super_min = dmin.value();
    for (unsigned k = 0; k < 16; ++k) {
      unsigned const shift = 2U * ((k / 2U) & 3U);
      std::uint8_t const* const from = qs + 32 * (k / 8) + 16 * (k & 1U);
      float const scale = super * static_cast<float>(scales[k] & 15);
      float const minimum = super_min * static_cast<float>(scales[k] >> 4);
      for (unsigned i = 0; i < 16; ++i) {
        y[16 * k + i] = scale * static_cast<float>((from[i] >> shift) & 3) - minimum;
      }
    }
  }

  [[nodiscard]] static q2_k encode(float const* x) noexcept {
    auto const fit = detail::affine_k_fit<16>::of(x, {.scale = 15, .code = 3});
    q2_k block{.scales = {}, .qs = {}, .d = le_f16::of(fit.d), .dmin = le_f16::of(fit.dmin)};
    for (unsigned k = 0; k < 16; ++k) {
      block.scales[k] = static_cast<std::uint8_t>(fit.scale[k] | fit.minimum[k] << 4U);
      std::uint8_t* const to = block.qs + 32 * (k / 8) + 16 * (k & 1U);
      unsigned const shift = 2U * ((k / 2U) & 3U);
      for (unsigned i = 0; i < 16; ++i) {
        to[i] = static_cast<std::uint8_t>(to[i] | fit.code[16 * k + i] << shift);
      }
    }
    return block;
  }
};
static_assert(encodable_format<q2_k>);

}  // namespace terrace::quant
