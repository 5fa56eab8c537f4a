// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace terrace {

/// Which two of the n rotated dimensions turn together.
enum class rope_pairing : unsigned char {
  interleaved,  ///< 2i and 2i + 1 (GGUF: NORM)
  half_split,   ///< i and i + n/2 (GGUF: NEOX)
};

/// x [tokens, heads, head_stride]; dimensions [first_dim, first_dim + n_rot) of every head are
/// rotated.
struct rope_shape {
  std::size_t tokens;
  std::size_t heads;
  std::size_t head_stride;
  std::size_t first_dim = 0;
  std::size_t n_rot;
  rope_pairing pairing;
};

}  // namespace terrace
