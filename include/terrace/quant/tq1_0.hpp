// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/quant/block_format.hpp>

#include <cstdint>

namespace terrace::quant {

/// 256 ternary weights, five (in the last bytes four) base-3 digits a byte, under one scale.
struct tq1_0 {
  std::uint8_t qs[48];
  std::uint8_t qh[4];
  le_f16 d;

  static constexpr quant_type type = quant_type::tq1_0;
  static constexpr std::uint32_t elements = 256;

  /// y = d * (digit - 1); digit n of all bytes of a group comes before digit n + 1 of any
  void decode(float* y) const noexcept {
    float const scale = d.value();
    float* const middle = decode_group(qs, 32, 5, scale, y);
    float* const last = decode_group(qs + 32, 16, 5, scale, middle);
    decode_group(qh, 4, 4, scale, last);
  }

 private:
  static float* decode_group(
      std::uint8_t const* bytes, int count, int digits, float scale, float* y) noexcept {
    unsigned power = 1;
    for (int n = 0; n < digits; ++n, power *= 3U) {
      for (int i = 0; i < count; ++i) {
        int const digit = static_cast<int>((((bytes[i] * power) & 255U) * 3U) >> 8U);
        *y++ = scale * static_cast<float>(digit - 1);
      }
    }
    return y;
  }
};
static_assert(block_format<tq1_0>);

}  // namespace terrace::quant
