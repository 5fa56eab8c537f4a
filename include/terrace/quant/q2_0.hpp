// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/quant/block_format.hpp>

#include <cstdint>

namespace terrace::quant {

/// 64 weights of 2 bits around 1 under one scale.
struct q2_0 {
  le_f16 d;
  std::uint8_t qs[16];  ///< four consecutive elements a byte, lowest bits first

  static constexpr quant_type type = quant_type::q2_0;
  static constexpr std::uint32_t elements = 64;

  /// y = d * (q - 1)
  void decode(float* y) const noexcept {
    float const scale = d.value();
    for (unsigned i = 0; i < 16; ++i) {
      for (unsigned k = 0; k < 4; ++k) {
        y[4 * i + k] = scale * static_cast<float>(static_cast<int>((qs[i] >> (2U * k)) & 3U) - 1);
      }
    }
  }
};
static_assert(block_format<q2_0>);

}  // namespace terrace::quant
