// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/quant/block_format.hpp>
#include <terrace/quant/iq1_s.hpp>
#include <terrace/quant/iq_grids.hpp>

#include <array>
#include <cstdint>

namespace terrace::quant {

/// 256 weights from the codebook of `iq1_s`, with a shift for each 8 and a 3-bit scale for 16.
struct iq1_m {
  std::uint8_t qs[32];  ///< per 8 elements: lower 8 bits of the codebook row
  std::uint8_t qh[16];  ///< per 8 elements a nibble: 3 upper row bits, sign of the shift
  le_u16 scales[4];  ///< 4 times 3 bits of scale each; their top nibbles spell the half-precision
                     ///< super-scale

  static constexpr quant_type type = quant_type::iq1_m;
  static constexpr std::uint32_t elements = 256;

  [[nodiscard]] float d() const noexcept {
    unsigned bits = 0;
    for (unsigned w = 0; w < 4; ++w) {
      bits |= static_cast<unsigned>(scales[w].value() >> 12U) << (4U * w);
    }
    return f16_to_f32(static_cast<std::uint16_t>(bits));
  }

  /// y = d * (2 * scale + 1) * (row[k] +- 0.125)
  void decode(float* __restrict y) const noexcept {
    float const super = d();
    std::array<std::uint64_t, 32> rows;
    for (unsigned i = 0; i < 32; ++i) {
      unsigned const nibble = (qh[i / 2] >> (4U * (i & 1U))) & 15U;
      unsigned const row = qs[i] | ((nibble & 7U) << 8U);
      rows[i] = iq1_eighths(iq1_s_grid[row], (nibble & 8U) != 0);
    }
    std::array<float, 16> group;
    for (unsigned k = 0; k < 16; ++k) {
      unsigned const code = (static_cast<unsigned>(scales[k / 4].value()) >> (3U * (k % 4U))) & 7U;
      group[k] = super * static_cast<float>(static_cast<int>(2U * code + 1U)) * 0.125F;
    }
    write_scaled(rows, iq1_bias, group, y);
  }
};
static_assert(block_format<iq1_m>);

}  // namespace terrace::quant
