// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/quant/block_format.hpp>
#include <terrace/quant/detail/k_fit.hpp>
#include <terrace/quant/k_scales.hpp>

#include <cstddef>
#include <cstdint>

namespace terrace::quant {

/// 256 weights of 5 bits in 8 sub-blocks of 32, each with a 6-bit scale and a 6-bit minimum.
struct q5_k {
  le_f16 d;
  le_f16 dmin;
  k_scales scales;
  std::uint8_t qh[32];   ///< bit j of byte i: fifth bit of element i of sub-block j
  std::uint8_t qs[128];  ///< byte 32p + i: element i of sub-block 2p low, of sub-block 2p + 1 high

  static constexpr quant_type type = quant_type::q5_k;
  static constexpr std::uint32_t elements = 256;
  static constexpr float max_magnitude = 65504.0F * 63;

  /// y = d * scale * q - dmin * minimum
  void decode(float* __restrict y) const noexcept {
    float const super = d.value();
    float const super_min = dmin.value();
    for (unsigned j = 0; j < 8; ++j) {
      float const scale = super * static_cast<float>(scales.scale(j));
      float const minimum = super_min * static_cast<float>(scales.minimum(j));
      std::uint8_t const* const from = qs + 32 * (j / 2);
      unsigned const shift = 4U * (j & 1U);
      for (unsigned i = 0; i < 32; ++i) {
        unsigned const code = ((from[i] >> shift) & 15U) | (((qh[i] >> j) & 1U) << 4U);
        y[32 * j + i] = scale * static_cast<float>(static_cast<int>(code)) - minimum;
      }
    }
  }

  [[nodiscard]] static q5_k encode(float const* x) noexcept {
    auto const fit = detail::affine_k_fit<8>::of(x, {.scale = 63, .code = 31});
    q5_k block{.d = le_f16::of(fit.d),
               .dmin = le_f16::of(fit.dmin),
               .scales = k_scales::of(fit.scale.data(), fit.minimum.data()),
               .qh = {},
               .qs = {}};
    for (std::size_t j = 0; j < 8; ++j) {
      for (std::size_t i = 0; i < 32; ++i) {
        unsigned const code = fit.code[32 * j + i];
        std::uint8_t& low = block.qs[32 * (j / 2) + i];
        low = static_cast<std::uint8_t>(low | (code & 15U) << (4U * (j & 1U)));
        block.qh[i] = static_cast<std::uint8_t>(block.qh[i] | (code >> 4U) << j);
      }
    }
    return block;
  }
};
static_assert(encodable_format<q5_k>);

}  // namespace terrace::quant
