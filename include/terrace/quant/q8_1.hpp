// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/quant/block_format.hpp>

#include <cstdint>

namespace terrace::quant {

/// 32 values of 8 bits under one scale, with their sum. A format of activations; files rarely hold
/// it.
struct q8_1 {
  le_f16 d;
  le_f16 s;  ///< d * sum of qs; not needed to decode
  std::int8_t qs[32];

  static constexpr quant_type type = quant_type::q8_1;
  static constexpr std::uint32_t elements = 32;

  /// y[j] = d * qs[j]
  void decode(float* __restrict y) const noexcept {
    float const scale = d.value();
    for (int j = 0; j < 32; ++j) { y[j] = scale * static_cast<float>(qs[j]); }
  }
};
static_assert(block_format<q8_1>);

}  // namespace terrace::quant
