// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace terrace::quant {

/// Eight 6-bit scales and eight 6-bit minima in 12 bytes, as q4_k and q5_k hold them: bytes 0-3 and
/// 4-7 carry the first four scales and minima in their low six bits and the top two bits of the
/// last four in their high two; bytes 8-11 carry the low nibbles of the last four (scale low,
/// minimum high).
struct k_scales {
  std::uint8_t bytes[12];

  [[nodiscard]] constexpr std::uint32_t scale(unsigned j) const noexcept {
    return j < 4 ? bytes[j] & 63U : (bytes[j + 4] & 15U) | ((bytes[j - 4] >> 6U) << 4U);
  }
  [[nodiscard]] constexpr std::uint32_t minimum(unsigned j) const noexcept {
    return j < 4 ? bytes[j + 4] & 63U : (bytes[j + 4] >> 4U) | ((bytes[j] >> 6U) << 4U);
  }
  /// Packs `scale[8]` and `minimum[8]`, each at most 63.
  [[nodiscard]] static constexpr k_scales of(std::uint8_t const* scale,
                                             std::uint8_t const* minimum) noexcept {
    k_scales packed{};
    for (unsigned j = 0; j < 4; ++j) {
      packed.bytes[j] = static_cast<std::uint8_t>(scale[j] | ((scale[j + 4] >> 4U) << 6U));
      packed.bytes[j + 4] = static_cast<std::uint8_t>(minimum[j] | ((minimum[j + 4] >> 4U) << 6U));
      packed.bytes[j + 8] =
          static_cast<std::uint8_t>((scale[j + 4] & 15U) | ((minimum[j + 4] & 15U) << 4U));
    }
    return packed;
  }
};

}  // namespace terrace::quant
