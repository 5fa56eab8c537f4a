// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/quant/block_format.hpp>
#include <terrace/quant/detail/fit.hpp>

#include <cstdint>

namespace terrace::quant {

/// 256 ternary weights, five (in the last bytes four) base-3 digits a byte, under one scale.
struct tq1_0 {
  std::uint8_t qs[48];
  std::uint8_t qh[4];
  le_f16 d;

  static constexpr quant_type type = quant_type::tq1_0;
  static constexpr std::uint32_t elements = 256;
  static constexpr float max_magnitude = 65504.0F;

  /// y = d * (digit - 1); digit n of all bytes of a group comes before digit n + 1 of any
  void decode(float* __restrict y) const noexcept {
    float const scale = d.value();
    float* const middle = decode_group(qs, 32, 5, scale, y);
    float* const last = decode_group(qs + 32, 16, 5, scale, middle);
    decode_group(qh, 4, 4, scale, last);
  }

  [[nodiscard]] static tq1_0 encode(float const* x) noexcept {
    float const scale = detail::fit_scale<256>(x, detail::ternary_codes, detail::round_to_f16);
    tq1_0 block{.qs = {}, .qh = {}, .d = le_f16::of(scale)};
    x = encode_group(x, 32, 5, scale, block.qs);
    x = encode_group(x, 16, 5, scale, block.qs + 32);
    encode_group(x, 4, 4, scale, block.qh);
    return block;
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
  static float const* encode_group(
      float const* x, int count, int digits, float scale, std::uint8_t* bytes) noexcept {
    for (int i = 0; i < count; ++i) {
      unsigned number = 0;
      for (int n = 0; n < 5; ++n) {  // bytes of fewer digits are padded with zeros at the end
        float const value = n < digits ? x[n * count + i] : -scale;
        float const code = scale == 0 ? 0.0F : detail::nearest(value / scale, -1, 1);
        number = 3 * number + static_cast<unsigned>(static_cast<int>(code) + 1);
      }
      // The digits are those of the fraction byte / 256, so the byte is rounded up.
      bytes[i] = static_cast<std::uint8_t>((number * 256U + 242U) / 243U);
    }
    return x + digits * count;
  }
};
static_assert(encodable_format<tq1_0>);

}  // namespace terrace::quant
