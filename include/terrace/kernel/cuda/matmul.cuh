// SPDX-License-Identifier: Apache-2.0
#pragma once

// Defines what matmul.hpp declares. Included by exactly one source file:
// examples/common/cuda_kernels/matmul.cu.

#include <terrace/core/error.hpp>
#include <terrace/kernel/cuda/detail/coded_product.cuh>
#include <terrace/kernel/cuda/detail/exact_product.cuh>
#include <terrace/kernel/cuda/detail/tensor_product.cuh>
#include <terrace/kernel/cuda/matmul.hpp>

#include <string>

namespace terrace::kernel::cuda {

namespace detail {

/// Products with 8-bit codes of up to most_coded_tokens inputs.
inline void coded_matmul(stream_ref on, matrix_view const& w, activations const& x, float* y) {
  coded_work const work{
      .w = coded_matrix_of(w),
      .in = {x.codes, x.scales, x.sums, static_cast<std::uint32_t>(x.pitch / code_columns)},
      .out = y};
  with_coded_kernel(w.type, x.tokens, [&](auto type, auto tokens) {
    constexpr quant_type kind = decltype(type)::value;
    constexpr unsigned most = decltype(tokens)::value;
    shim::launch(coded_matrix_kernel<kind, most>,
                 {.grid = stream_grid<most>((w.rows + paired_rows - 1) / paired_rows),
                  .block = stream_threads,
                  .shared_bytes = stream_warps * ring_bytes<kind, most>,
                  .overlaps = true},
                 on,
                 work,
                 w.data,
                 w.multiplier,
                 static_cast<unsigned>(x.tokens));
  });
}

/// Products with bfloat16 inputs on tensor cores.
inline void tensor_matmul(stream_ref on, matrix_view const& w, activations const& x, float* y) {
  tensor_matrix const work{
      weights_of(w), x.halves, x.pitch, static_cast<std::uint32_t>(x.tokens), y};
  auto const across = static_cast<unsigned>((w.rows + tile_matrix_rows - 1) / tile_matrix_rows);
  auto const tiles = static_cast<unsigned>((x.tokens + tile_inputs - 1) / tile_inputs);
  with_type(w.type, [&](auto type) {
    constexpr quant_type kind = decltype(type)::value;
    if constexpr (tensor_type<kind>) {
      shim::launch(tensor_matrix_kernel<kind>,
                   {.grid = dim3{across, tiles},
                    .block = tile_threads,
                    .shared_bytes = tile_segment<kind>::shared_bytes},
                   on,
                   work);
    }
  });
}

}  // namespace detail

void matmul(stream_ref on, matrix_view const& w, activations const& x, float* y) {
  if (w.cols != x.cols) {
    throw contract_error{"a matrix of " + std::to_string(w.cols) + " columns cannot multiply " +
                         std::to_string(x.cols) + " values a token"};
  }
  if (w.rows * x.tokens == 0) { return; }
  if (x.codes != nullptr && detail::takes_codes(w.type, w.grid)) {
    detail::coded_matmul(on, w, x, y);
    return;
  }
  if (x.halves != nullptr && detail::takes_halves(w.type, w.grid) && detail::multiplies_halves()) {
    detail::tensor_matmul(on, w, x, y);
    return;
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
  detail::with_type(
      w.type, [&](auto type) { detail::launch_exact_product<decltype(type)::value>(on, work); });
}

}  // namespace terrace::kernel::cuda
