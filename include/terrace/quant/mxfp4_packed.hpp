// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/quant/block_format.hpp>

#include <cstdint>

namespace terrace::quant {

/// 32 E2M1 weights as compressed-tensors packs them; `decode` gives them without the scale, which
/// lies in another tensor
/// (`matrix_view::scales`, E8M0 bytes).
struct mxfp4_packed {
  std::uint8_t qs[16];  ///< byte j: element 2j low, element 2j + 1 high

  static constexpr quant_type type = quant_type::mxfp4_packed;
  static constexpr std::uint32_t elements = 32;

  void decode(float* __restrict y) const noexcept {
    for (int j = 0; j < 16; ++j) {
      y[2 * j] = static_cast<float>(e2m1_doubled[qs[j] & 15]) * 0.5F;
      y[2 * j + 1] = static_cast<float>(e2m1_doubled[qs[j] >> 4]) * 0.5F;
    }
  }
};
static_assert(block_format<mxfp4_packed>);

}  // namespace terrace::quant
