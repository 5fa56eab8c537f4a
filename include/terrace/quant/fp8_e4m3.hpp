// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/quant/block_format.hpp>

#include <cstdint>

namespace terrace::quant {

/// One E4M3 code; `decode` gives it without the scale, which lies in another tensor
/// (`matrix_view::scales`).
struct fp8_e4m3 {
  std::uint8_t code;

  static constexpr quant_type type = quant_type::fp8_e4m3;
  static constexpr std::uint32_t elements = 1;

  void decode(float* __restrict y) const noexcept { *y = e4m3_to_f32(code); }
};
static_assert(block_format<fp8_e4m3>);

}  // namespace terrace::quant
