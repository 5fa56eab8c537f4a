// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/quant/block_format.hpp>

#include <cstdint>

namespace terrace::quant {

/// 32 weights of 4 bits around 8, as compressed-tensors packs them (int32 words, lowest nibble
/// first, little endian); `decode` gives nibble - 8 without the scale, which lies in another tensor
/// (`matrix_view::scales`).
struct int4_g32 {
  std::uint8_t qs[16];  ///< byte j: element 2j low, element 2j + 1 high

  static constexpr quant_type type = quant_type::int4_g32;
  static constexpr std::uint32_t elements = 32;

  void decode(float* __restrict y) const noexcept {
    for (int j = 0; j < 16; ++j) {
      y[2 * j] = static_cast<float>((qs[j] & 15) - 8);
      y[2 * j + 1] = static_cast<float>((qs[j] >> 4) - 8);
    }
  }
};
static_assert(block_format<int4_g32>);

}  // namespace terrace::quant
