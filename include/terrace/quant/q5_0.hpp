// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/quant/block_format.hpp>

#include <cstdint>

namespace terrace::quant {

/// 32 weights of 5 bits around 16 under one scale.
struct q5_0 {
  le_f16 d;
  le_u32 qh;            ///< bit j: fifth bit of element j
  std::uint8_t qs[16];  ///< byte j: element j in the low nibble, element j + 16 in the high one

  static constexpr quant_type type = quant_type::q5_0;
  static constexpr std::uint32_t elements = 32;

  /// y[j] = d * (nibble + 16 * bit - 16)
  void decode(float* __restrict y) const noexcept {
    float const scale = d.value();
    std::uint32_t const high = qh.value();
    for (unsigned j = 0; j < 16; ++j) {
      int const first = (qs[j] & 15) | static_cast<int>(((high >> j) & 1U) << 4U);
      int const second = (qs[j] >> 4) | static_cast<int>(((high >> (j + 16U)) & 1U) << 4U);
      y[j] = scale * static_cast<float>(first - 16);
      y[j + 16] = scale * static_cast<float>(second - 16);
    }
  }
};
static_assert(block_format<q5_0>);

}  // namespace terrace::quant
