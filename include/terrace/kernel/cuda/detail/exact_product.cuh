// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/head_product.hpp>
#include <terrace/core/stream_ref.hpp>
#include <terrace/kernel/cuda/detail/exact_dots.cuh>
#include <terrace/shim/cuda.hpp>

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

namespace terrace::kernel::cuda::detail {

/// Products of `rows` rows of a matrix from `first_row` on with `tokens` vectors; several times,
/// for heads whose rows and vectors lie a fixed step apart.
struct exact_work {
  weights w;
  std::uint64_t first_row;
  std::uint64_t rows;
  std::size_t tokens;
  std::size_t heads;
  std::uint64_t head_rows;  ///< from head to head
  float const* in;
  std::size_t in_token_stride;
  std::size_t in_head_stride;
  float* out;
  std::size_t out_token_stride;
  std::size_t out_head_stride;
};

/// Blocks: x rows, y vectors, z heads.
template <quant_type Type, unsigned Tokens>
static __global__ void __launch_bounds__(row_warps* warp_threads)
    exact_product_kernel(exact_work work) {
  std::uint64_t const row =
      static_cast<std::uint64_t>(blockIdx.x) * row_warps + threadIdx.x / warp_threads;
  if (row >= work.rows) { return; }  // whole warps leave
  std::size_t const head = blockIdx.z;
  std::size_t const first = static_cast<std::size_t>(blockIdx.y) * Tokens;
  std::size_t const left = work.tokens - first;
  auto const count = static_cast<unsigned>(left < Tokens ? left : Tokens);
  float const* x[Tokens];
#pragma unroll
  for (unsigned t = 0; t < Tokens; ++t) {
    x[t] = work.in + (first + t) * work.in_token_stride + head * work.in_head_stride;
  }
  float sums[Tokens];
  exact_dots<Type>(work.w, work.first_row + head * work.head_rows + row, x, count, sums);
  if (threadIdx.x % warp_threads != 0) { return; }
#pragma unroll
  for (unsigned t = 0; t < Tokens; ++t) {
    if (t < count) {
      work.out[(first + t) * work.out_token_stride + head * work.out_head_stride + row] = sums[t];
    }
  }
}

template <quant_type Type>
void launch_exact_product(stream_ref on, exact_work const& work) {
  auto const go = [&](auto kernel, unsigned tile) {
    auto const rows = static_cast<unsigned>((work.rows + row_warps - 1) / row_warps);
    auto const tiles = static_cast<unsigned>((work.tokens + tile - 1) / tile);
    shim::launch(kernel,
                 {.grid = dim3{rows, tiles, static_cast<unsigned>(work.heads)},
                  .block = row_warps * warp_threads},
                 on,
                 work);
  };
  if (work.tokens == 1) {
    go(exact_product_kernel<Type, 1>, 1);
  } else {
    go(exact_product_kernel<Type, exact_tile>, exact_tile);
  }
}

}  // namespace terrace::kernel::cuda::detail
