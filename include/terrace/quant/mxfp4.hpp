// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/quant/block_format.hpp>

#include <cstdint>

namespace terrace::quant {

/// 32 E2M1 weights under one power of two (OCP microscaling, in the layout of GGUF).
struct mxfp4 {
  std::uint8_t
      e;  ///< E8M0: 2^(e - 127); 255 is a number here, not NaN, and its products may overflow
  std::uint8_t qs[16];  ///< byte j: element j in the low nibble, element j + 16 in the high one

  static constexpr quant_type type = quant_type::mxfp4;
  static constexpr std::uint32_t elements = 32;

  /// y = e2m1(nibble) * 2^(e - 127)
  void decode(float* y) const noexcept {
    float const half_scale = e8m0_half_to_f32(e);
    for (int j = 0; j < 16; ++j) {
      y[j] = half_scale * static_cast<float>(e2m1_doubled[qs[j] & 15]);
      y[j + 16] = half_scale * static_cast<float>(e2m1_doubled[qs[j] >> 4]);
    }
  }
};
static_assert(block_format<mxfp4>);

}  // namespace terrace::quant
