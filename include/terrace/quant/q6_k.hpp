// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/quant/block_format.hpp>
#include <terrace/quant/detail/k_fit.hpp>

#include <algorithm>
#include <cstdint>

namespace terrace::quant {

/// 256 weights of 6 bits around 32 in 16 groups of 16 with 8-bit scales.
struct q6_k {
  std::uint8_t
      ql[128];  ///< low 4 bits; nibble g / 2 of byte 64h + 32(g & 1) + l: element 128h + 32g + l
  std::uint8_t qh[64];     ///< high 2 bits; bits 2g, 2g+1 of byte 32h + l: element 128h + 32g + l
  std::int8_t scales[16];  ///< one per 16 consecutive elements
  le_f16 d;

  static constexpr quant_type type = quant_type::q6_k;
  static constexpr std::uint32_t elements = 256;
  static constexpr float max_magnitude = 65504.0F * 127 * 31;

  /// y = d * scale * (q - 32)
  void decode(float* __restrict y) const noexcept {
    float const super = d.value();
    for (unsigned k = 0; k < 8; ++k) {
      unsigned const half = k / 4U;
      unsigned const group = k % 4U;
      std::uint8_t const* const low = ql + 64 * half + 32 * (group & 1U);
      std::uint8_t const* const high = qh + 32 * half;
      float const first = super * static_cast<float>(scales[2 * k]);
      float const second = super * static_cast<float>(scales[2 * k + 1]);
      for (unsigned i = 0; i < 32; ++i) {
        unsigned const code =
            ((low[i] >> (4U * (group >> 1U))) & 15U) | (((high[i] >> (2U * group)) & 3U) << 4U);
        y[32 * k + i] = (i < 16 ? first : second) * static_cast<float>(static_cast<int>(code) - 32);
      }
    }
  }

  [[nodiscard]] static q6_k encode(float const* x) noexcept {
    constexpr detail::symmetric_range range{
        .scale_low = -128,
        .scale_high = 127,
        .code = {
            .low = -32, .high = 31, .nearest_level = 30, .farthest_level = 33.5F, .step = 0.25F}};
    auto const fit = detail::symmetric_k_fit::of(x, range);
    q6_k block{.ql = {}, .qh = {}, .scales = {}, .d = le_f16::of(fit.d)};
    std::copy(fit.scale.begin(), fit.scale.end(), block.scales);
    for (unsigned h = 0; h < 2; ++h) {
      for (unsigned g = 0; g < 4; ++g) {
        for (unsigned l = 0; l < 32; ++l) {
          auto const code = static_cast<unsigned>(fit.code[128 * h + 32 * g + l] + 32);
          std::uint8_t& low = block.ql[64 * h + 32 * (g & 1U) + l];
          std::uint8_t& high = block.qh[32 * h + l];
          low = static_cast<std::uint8_t>(low | (code & 15U) << (4U * (g >> 1U)));
          high = static_cast<std::uint8_t>(high | (code >> 4U) << (2U * g));
        }
      }
    }
    return block;
  }
};
static_assert(encodable_format<q6_k>);

}  // namespace terrace::quant
