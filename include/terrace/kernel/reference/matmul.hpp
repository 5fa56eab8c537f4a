// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/block.hpp>
#include <terrace/quant/decode.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

/// Plain loops in double precision: what the other kernels are compared with, not something to run
/// a model on.
namespace terrace::kernel::reference {

/// y[t * y_stride + r] = sum over c of w[r, c] * x[t, c], weights decoded to float32, the sum in
/// double.
/// Shapes: w [rows, cols], x [tokens, cols], y [tokens, rows].
inline void matmul(
    matrix_view const& w, float const* x, std::size_t tokens, float* y, std::size_t y_stride) {
  std::vector<float> row(w.cols);
  for (std::size_t r = 0; r < w.rows; ++r) {
    quant::decode_row(w, r, row);
    for (std::size_t t = 0; t < tokens; ++t) {
      double sum = 0;
      for (std::size_t c = 0; c < w.cols; ++c) {
        sum += static_cast<double>(row[c]) * x[t * w.cols + c];
      }
      y[t * y_stride + r] = static_cast<float>(sum);
    }
  }
}

}  // namespace terrace::kernel::reference
