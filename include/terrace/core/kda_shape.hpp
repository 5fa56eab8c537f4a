// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace terrace {

/// How a channel of Kimi delta attention forgets, given z + dt_bias = s and the head's rate
/// r = e^A_log: `bounded` has the log-decay `bound` * sigmoid(r s) (Kimi K3), `softplus` has
/// -r ln(1 + e^s) (Kimi-Linear).
enum class kda_decay { bounded, softplus };

/// Sizes of one layer of Kimi delta attention. Keys and values of a head have the same width.
struct kda_shape {
  std::size_t heads = 0;
  std::size_t dim = 0;   ///< of a head
  std::size_t taps = 4;  ///< of the short convolutions; the last meets the current token
  kda_decay decay = kda_decay::bounded;
  float bound = -5;  ///< of `kda_decay::bounded`

  [[nodiscard]] constexpr std::size_t width() const noexcept { return heads * dim; }

  // The state of a sequence after any number of tokens, all float32, zero at the start:
  // S [heads, dim of keys, dim of values], then the last inputs of the q, k and v convolutions,
  // each [taps - 1, width], oldest first.
  [[nodiscard]] constexpr std::size_t matrix_values() const noexcept { return heads * dim * dim; }
  [[nodiscard]] constexpr std::size_t history_values() const noexcept {
    return (taps - 1) * width();
  }
  /// Where the history of convolution `which` (0 q, 1 k, 2 v) starts, in floats.
  [[nodiscard]] constexpr std::size_t history_offset(std::size_t which) const noexcept {
    return matrix_values() + which * history_values();
  }
  [[nodiscard]] constexpr std::size_t state_values() const noexcept { return history_offset(3); }
  [[nodiscard]] constexpr std::size_t state_bytes() const noexcept {
    return state_values() * sizeof(float);
  }
};

}  // namespace terrace
