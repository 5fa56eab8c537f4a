// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/quant/block_format.hpp>
#include <terrace/quant/detail/k_fit.hpp>

#include <cstdint>

namespace terrace::quant {

/// 256 weights of 3 bits around 4 in 16 groups of 16, with 6-bit scales around 32.
struct q3_k {
  std::uint8_t
      hmask[32];        ///< bit 4h + s of byte 16g + i: third bit of element i of group 8h + 2s + g
  std::uint8_t qs[64];  ///< bits 2s, 2s+1 of byte 32h + 16g + i: lower two bits of that element
  std::uint8_t scales[12];  ///< 16 low nibbles in the first 8 bytes, then 16 times 2 high bits
  le_f16 d;

  static constexpr quant_type type = quant_type::q3_k;
  static constexpr std::uint32_t elements = 256;
  static constexpr float max_magnitude = 65504.0F * 31 * 3;

  /// Scale of group k, -32 to 31.
  [[nodiscard]] int scale(unsigned k) const noexcept {
    unsigned const low = (scales[k % 8] >> (4U * (k / 8U))) & 15U;
    unsigned const high = (scales[8 + k % 4] >> (2U * (k / 4U))) & 3U;
    return static_cast<int>(low | (high << 4U)) - 32;
  }

  /// y = d * scale * (q - 4)
  void decode(float* __restrict y) const noexcept {
    float const super = d.value();
    for (unsigned k = 0; k < 8; ++k) {
      unsigned const half = k / 4U;
      unsigned const step = k % 4U;
      std::uint8_t const* const low = qs + 32 * half;
      float const first = super * static_cast<float>(scale(2 * k));
      float const second = super * static_cast<float>(scale(2 * k + 1));
      for (unsigned i = 0; i < 32; ++i) {
        unsigned const code =
            ((low[i] >> (2U * step)) & 3U) | (((hmask[i] >> (4U * half + step)) & 1U) << 2U);
        y[32 * k + i] = (i < 16 ? first : second) * static_cast<float>(static_cast<int>(code) - 4);
      }
    }
  }

  [[nodiscard]] static q3_k encode(float const* x) noexcept {
    constexpr detail::symmetric_range range{
        .scale_low = -32,
        .scale_high = 31,
        .code = {.low = -4, .high = 3, .nearest_level = 2, .farthest_level = 5, .step = 0.125F}};
    auto const fit = detail::symmetric_k_fit::of(x, range);
    q3_k block{.hmask = {}, .qs = {}, .scales = {}, .d = le_f16::of(fit.d)};
    for (unsigned k = 0; k < 16; ++k) {
      block.write_scale(k, static_cast<unsigned>(fit.scale[k] + 32));
      unsigned const half = k / 8U;
      unsigned const step = (k / 2U) & 3U;
      std::uint8_t* const low = block.qs + 32 * half + 16 * (k & 1U);
      std::uint8_t* const high = block.hmask + 16 * (k & 1U);
      for (unsigned i = 0; i < 16; ++i) {
        auto const code = static_cast<unsigned>(fit.code[16 * k + i] + 4);
        low[i] = static_cast<std::uint8_t>(low[i] | (code & 3U) << (2U * step));
        high[i] = static_cast<std::uint8_t>(high[i] | (code >> 2U) << (4U * half + step));
      }
    }
    return block;
  }

 private:
  void write_scale(unsigned k, unsigned code) noexcept {
    std::uint8_t& low = scales[k % 8];
    std::uint8_t& high = scales[8 + k % 4];
    low = static_cast<std::uint8_t>(low | (code & 15U) << (4U * (k / 8U)));
    high = static_cast<std::uint8_t>(high | (code >> 4U) << (2U * (k / 4U)));
  }
};
static_assert(encodable_format<q3_k>);

}  // namespace terrace::quant
