// SPDX-License-Identifier: Apache-2.0
#pragma once

// Defines what head_products.hpp declares. Included by exactly one source file:
// examples/common/cuda_kernels/head_products.cu.

#include <terrace/core/error.hpp>
#include <terrace/kernel/cuda/detail/exact_product.cuh>
#include <terrace/kernel/cuda/head_products.hpp>
#include <terrace/shim/cuda.hpp>

#include <cstddef>
#include <cstdint>
#include <string>

namespace terrace::kernel::cuda {

namespace detail {

/// Shares of the rows of a transposed factor: share s takes rows s, s + 8, ..., ascending; shares
/// are added in ascending order.
inline constexpr unsigned row_shares = 8;
/// Vectors that share what is decoded of a transposed factor.
inline constexpr unsigned transposed_tile = 4;

/// A block gives 256 columns for up to four tokens. Blocks: x columns, y tokens, z heads.
template <quant_type Type>
static __global__ void __launch_bounds__(row_shares* warp_threads)
    transposed_product_kernel(exact_work work) {
  __shared__ float parts[row_shares][octet_elements][warp_threads];
  unsigned const lane = threadIdx.x % warp_threads;
  unsigned const share = threadIdx.x / warp_threads;
  std::uint32_t const index = blockIdx.x * warp_threads + lane;
  std::size_t const head = blockIdx.z;
  std::size_t const first = static_cast<std::size_t>(blockIdx.y) * transposed_tile;
  std::size_t const left = work.tokens - first;
  unsigned const count = static_cast<unsigned>(left < transposed_tile ? left : transposed_tile);
  float const* const in = work.in + first * work.in_token_stride + head * work.in_head_stride;
  float sums[transposed_tile][octet_elements] = {};
  if (index < octets_in(work.w.cols)) {
    for (std::uint64_t row = share; row < work.rows; row += row_shares) {
      float weight[octet_elements];
      decode_octet<Type>(work.w, work.first_row + head * work.head_rows + row, index, weight);
#pragma unroll
      for (unsigned t = 0; t < transposed_tile; ++t) {
        if (t >= count) { break; }
        float const x = in[t * work.in_token_stride + row];
#pragma unroll
        for (unsigned i = 0; i < octet_elements; ++i) {
          sums[t][i] = fmaf(weight[i], x, sums[t][i]);
        }
      }
    }
  }
#pragma unroll
  for (unsigned t = 0; t < transposed_tile; ++t) {
    if (t >= count) { break; }
    __syncthreads();
#pragma unroll
    for (unsigned i = 0; i < octet_elements; ++i) { parts[share][i][lane] = sums[t][i]; }
    __syncthreads();
    // Each warp adds one element of the octets.
    float sum = parts[0][share][lane];
    for (unsigned s = 1; s < row_shares; ++s) { sum = sum + parts[s][share][lane]; }
    std::uint32_t const column = octet_elements * index + share;
    if (column < work.w.cols) {
      work.out[(first + t) * work.out_token_stride + head * work.out_head_stride + column] = sum;
    }
  }
}

template <quant_type Type>
void launch_transposed_product(stream_ref on, exact_work const& work) {
  unsigned const across = (octets_in(work.w.cols) + warp_threads - 1) / warp_threads;
  auto const tiles = static_cast<unsigned>((work.tokens + transposed_tile - 1) / transposed_tile);
  shim::launch(transposed_product_kernel<Type>,
               {.grid = dim3{across, tiles, static_cast<unsigned>(work.heads)},
                .block = row_shares * warp_threads},
               on,
               work);
}

}  // namespace detail

void head_products(stream_ref on, head_product const& all, std::size_t tokens) {
  if (all.heads * all.rows * all.factors.cols * tokens == 0) { return; }
  std::uint64_t const end = all.first_row + (all.heads - 1) * all.row_stride + all.rows;
  if (end > all.factors.rows) {
    throw contract_error{"factors of " + std::to_string(all.heads) + " heads end at row " +
                         std::to_string(end) + " of a matrix of " +
                         std::to_string(all.factors.rows)};
  }
  detail::exact_work const work{.w = detail::weights_of(all.factors),
                                .first_row = all.first_row,
                                .rows = all.rows,
                                .tokens = tokens,
                                .heads = all.heads,
                                .head_rows = all.row_stride,
                                .in = all.in,
                                .in_token_stride = all.in_token_stride,
                                .in_head_stride = all.in_head_stride,
                                .out = all.out,
                                .out_token_stride = all.out_token_stride,
                                .out_head_stride = all.out_head_stride};
  detail::with_type(all.factors.type, [&](auto type) {
    if (all.transposed) {
      detail::launch_transposed_product<decltype(type)::value>(on, work);
    } else {
      detail::launch_exact_product<decltype(type)::value>(on, work);
    }
  });
}

}  // namespace terrace::kernel::cuda
