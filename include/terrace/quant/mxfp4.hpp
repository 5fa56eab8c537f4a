// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/quant/block_format.hpp>
#include <terrace/quant/detail/fit.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace terrace::quant {

/// Code of the E2M1 number nearest to half of `doubled`, ties to the even code; saturates.
[[nodiscard]] constexpr unsigned nearest_e2m1(float doubled) noexcept {
  float const v = doubled < 0 ? -doubled : doubled;
  unsigned const magnitude =
      (v > 0.5F) + (v >= 1.5F) + (v > 2.5F) + (v >= 3.5F) + (v > 5.0F) + (v >= 7.0F) + (v > 10.0F);
  return doubled < 0 && magnitude != 0 ? magnitude + 8U : magnitude;
}

/// 32 E2M1 weights under one power of two (OCP microscaling, in the layout of GGUF).
struct mxfp4 {
  std::uint8_t
      e;  ///< E8M0: 2^(e - 127); 255 is a number here, not NaN, and its products may overflow
  std::uint8_t qs[16];  ///< byte j: element j in the low nibble, element j + 16 in the high one

  static constexpr quant_type type = quant_type::mxfp4;
  static constexpr std::uint32_t elements = 32;
  static constexpr float max_magnitude = 0x1.8p127F;

  /// y = e2m1(nibble) * 2^(e - 127)
  void decode(float* __restrict y) const noexcept {
    float const half_scale = e8m0_half_to_f32(e);
    for (int j = 0; j < 16; ++j) {
      y[j] = half_scale * static_cast<float>(e2m1_doubled[qs[j] & 15]);
    }
    for (int j = 0; j < 16; ++j) {
      y[j + 16] = half_scale * static_cast<float>(e2m1_doubled[qs[j] >> 4]);
    }
  }

  /// Takes the better of the exponent that puts the largest value within [4, 8), where it may be
  /// clipped to 6, and the next one.
  [[nodiscard]] static mxfp4 encode(float const* x) noexcept {
    float const largest = std::abs(detail::extreme_of<32>(x));
    if (largest == 0) { return {.e = 0, .qs = {}}; }
    int const fitting = std::max(std::ilogb(largest) - 2 + 127, 0);
    auto const e = static_cast<std::uint8_t>(fitting);
    auto const next = static_cast<std::uint8_t>(fitting + 1);
    return with_exponent(x, error_with(x, e) <= error_with(x, next) ? e : next);
  }

 private:
  [[nodiscard]] static mxfp4 with_exponent(float const* x, std::uint8_t e) noexcept {
    float const half_scale = e8m0_half_to_f32(e);
    mxfp4 block{.e = e, .qs = {}};
    for (int j = 0; j < 16; ++j) {
      block.qs[j] = static_cast<std::uint8_t>(nearest_e2m1(x[j] / half_scale) |
                                              nearest_e2m1(x[j + 16] / half_scale) << 4U);
    }
    return block;
  }
  [[nodiscard]] static double error_with(float const* x, std::uint8_t e) noexcept {
    double const half_scale = e8m0_half_to_f32(e);
    double error = 0;
    for (int j = 0; j < 32; ++j) {
      double const doubled = x[j] / half_scale;
      double const rest = doubled - e2m1_doubled[nearest_e2m1(static_cast<float>(doubled))];
      error += rest * rest;
    }
    return error * half_scale * half_scale;
  }
};
static_assert(encodable_format<mxfp4>);

}  // namespace terrace::quant
