// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/block.hpp>

#include <cstddef>
#include <cstdint>

namespace terrace {

/// A small product per attention head with factors stacked in one matrix, head h in the rows
/// [first_row + h * row_stride, + rows).
///
/// Shapes: out [tokens, rows] = factor in, or with `transposed` out [tokens, cols] = factor^T in, for each head; strides
///         in floats from token to token and from head to head.
struct head_product {
  matrix_view factors;
  std::size_t heads = 0;
  std::uint64_t first_row = 0;
  std::uint64_t row_stride = 0;
  std::uint64_t rows = 0;
  bool transposed = false;
  float const* in = nullptr;
  std::size_t in_token_stride = 0;
  std::size_t in_head_stride = 0;
  float* out = nullptr;
  std::size_t out_token_stride = 0;
  std::size_t out_head_stride = 0;
};

}  // namespace terrace
