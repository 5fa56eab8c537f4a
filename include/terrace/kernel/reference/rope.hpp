// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

namespace terrace::kernel::reference {

/// Rotates `pairs` pairs of one head's values by position * freqs[i]: (2i, 2i + 1), or (i, i +
/// pairs) when `half_split`.
inline void rope(
    float* x, std::uint32_t position, float const* freqs, std::size_t pairs, bool half_split) {
  for (std::size_t i = 0; i < pairs; ++i) {
    double const angle = static_cast<double>(static_cast<float>(position) * freqs[i]);
    float& first = x[half_split ? i : 2 * i];
    float& second = x[half_split ? i + pairs : 2 * i + 1];
    double const a = first;
    double const b = second;
    first = static_cast<float>(a * std::cos(angle) - b * std::sin(angle));
    second = static_cast<float>(a * std::sin(angle) + b * std::cos(angle));
  }
}

}  // namespace terrace::kernel::reference
