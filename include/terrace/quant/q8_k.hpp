// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/quant/block_format.hpp>

#include <bit>
#include <cstdint>

namespace terrace::quant {

/// 256 values of 8 bits under one float32 scale, with the sums of groups of 16. A format of
/// activations.
struct q8_k {
  le_u32 d;  ///< float32 bits
  std::int8_t qs[256];
  le_u16 bsums[16];  ///< not needed to decode

  static constexpr quant_type type = quant_type::q8_k;
  static constexpr std::uint32_t elements = 256;

  /// y[j] = d * qs[j], rounded once
  void decode(float* __restrict y) const noexcept {
    float const scale = std::bit_cast<float>(d.value());
    for (int j = 0; j < 256; ++j) { y[j] = scale * static_cast<float>(qs[j]); }
  }
};
static_assert(block_format<q8_k>);

}  // namespace terrace::quant
