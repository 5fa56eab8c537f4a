// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/quant/block_format.hpp>

#include <cstdint>

namespace terrace::quant {

/// 64 E2M1 weights in 4 sub-blocks of 16, each under an E4M3 scale. A factor per tensor may lie in
/// a tensor of its own
/// (`matrix_view::multiplier`).
struct nvfp4 {
  std::uint8_t scales[4];  ///< unsigned E4M3
  std::uint8_t qs[32];     ///< 8 bytes a sub-block; byte i: element i low, element i + 8 high

  static constexpr quant_type type = quant_type::nvfp4;
  static constexpr std::uint32_t elements = 64;

  /// y = e2m1(nibble) * ue4m3(scale)
  void decode(float* __restrict y) const noexcept {
    for (int s = 0; s < 4; ++s) {
      float const half_scale = ue4m3_to_f32(scales[s]) * 0.5F;
      for (int i = 0; i < 8; ++i) {
        y[16 * s + i] = half_scale * static_cast<float>(e2m1_doubled[qs[8 * s + i] & 15]);
        y[16 * s + i + 8] = half_scale * static_cast<float>(e2m1_doubled[qs[8 * s + i] >> 4]);
      }
    }
  }
};
static_assert(block_format<nvfp4>);

}  // namespace terrace::quant
