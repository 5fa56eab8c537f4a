// SPDX-License-Identifier: Apache-2.0
#pragma once

// Defines what matmul.hpp declares. Included by exactly one source file:
// examples/common/cuda_kernels/matmul.cu.

#include <terrace/core/error.hpp>
#include <terrace/kernel/cuda/detail/exact_product.cuh>
#include <terrace/kernel/cuda/matmul.hpp>

#include <string>

namespace terrace::kernel::cuda {

void matmul(stream_ref on, matrix_view const& w, activations const& x, float* y) {
  if (w.cols != x.cols) {
    throw contract_error{"a matrix of " + std::to_string(w.cols) + " columns cannot multiply " +
                         std::to_string(x.cols) + " values a token"};
  }
  detail::exact_work const work{.w = detail::weights_of(w),
                                .first_row = 0,
                                .rows = w.rows,
                                .tokens = x.tokens,
                                .heads = 1,
                                .head_rows = 0,
                                .in = x.values,
                                .in_token_stride = x.cols,
                                .in_head_stride = 0,
                                .out = y,
                                .out_token_stride = w.rows,
                                .out_head_stride = 0};
  if (w.rows * x.tokens == 0) { return; }
  detail::with_type(
      w.type, [&](auto type) { detail::launch_exact_product<decltype(type)::value>(on, work); });
}

}  // namespace terrace::kernel::cuda
