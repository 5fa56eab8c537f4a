// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/quant/block_format.hpp>
#include <terrace/quant/detail/fit.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

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
  void decode(float* y) const noexcept {
    float const super = d.value();
    for (unsigned k = 0; k < 16; ++k) {
      unsigned const half = k / 8U;
      unsigned const group = (k / 2U) & 3U;
      std::uint8_t const* const low = ql + 64 * half + 32 * (group & 1U) + 16 * (k & 1U);
      std::uint8_t const* const high = qh + 32 * half + 16 * (k & 1U);
      float const scale = super * static_cast<float>(scales[k]);
      for (unsigned i = 0; i < 16; ++i) {
        unsigned const code =
            ((low[i] >> (4U * (group >> 1U))) & 15U) | (((high[i] >> (2U * group)) & 3U) << 4U);
        y[16 * k + i] = scale * static_cast<float>(static_cast<int>(code) - 32);
      }
    }
  }

  [[nodiscard]] static q6_k encode(float const* x) noexcept {
    float wanted[16];
    for (int k = 0; k < 16; ++k) {
      constexpr detail::code_range codes{
          .low = -32, .high = 31, .nearest_level = 30, .farthest_level = 33.5F, .step = 0.25F};
      wanted[k] = detail::fit_scale<16>(x + 16 * k, codes, detail::keep);
    }
    float const super = detail::round_to_f16(std::abs(detail::extreme_of<16>(wanted)) / 127);
    q6_k block{.ql = {}, .qh = {}, .scales = {}, .d = le_f16::of(super)};
    for (unsigned k = 0; k < 16; ++k) {
      float const code = super > 0 ? choose_scale(x + 16 * k, wanted[k] / super, super) : 0.0F;
      block.scales[k] = static_cast<std::int8_t>(code);
      block.write_codes(x + 16 * k, k, super * code);
    }
    return block;
  }

 private:
  /// The whole scale next to `wanted` that leaves the least error.
  [[nodiscard]] static float choose_scale(float const* x, float wanted, float super) noexcept {
    float const middle = detail::nearest(wanted, -127, 127);
    float best = 0;
    float best_error = std::numeric_limits<float>::max();
    for (float code = std::max(middle - 1, -127.0F); code <= std::min(middle + 1, 127.0F); ++code) {
      float const scale = super * code;
      if (scale == 0) { continue; }
      float rest[16];
      for (int i = 0; i < 16; ++i) {
        float const level = x[i] / scale;
        rest[i] = (level - detail::nearest(level, -32, 31)) * code;
      }
      float const error = detail::dot<16>(rest, rest);
      if (error < best_error) {
        best = code;
        best_error = error;
      }
    }
    return best;
  }
  void write_codes(float const* x, unsigned k, float scale) noexcept {
    unsigned const half = k / 8U;
    unsigned const group = (k / 2U) & 3U;
    std::uint8_t* const low = ql + 64 * half + 32 * (group & 1U) + 16 * (k & 1U);
    std::uint8_t* const high = qh + 32 * half + 16 * (k & 1U);
    for (unsigned i = 0; i < 16; ++i) {
      float const code = scale == 0 ? 0.0F : detail::nearest(x[i] / scale, -32, 31);
      auto const bits = static_cast<unsigned>(static_cast<int>(code) + 32);
      low[i] = static_cast<std::uint8_t>(low[i] | (bits & 15U) << (4U * (group >> 1U)));
      high[i] = static_cast<std::uint8_t>(high[i] | (bits >> 4U) << (2U * group));
    }
  }
};
static_assert(encodable_format<q6_k>);

}  // namespace terrace::quant
