// SPDX-License-Identifier: Apache-2.0
#pragma once

// Defines what kv_cache.hpp declares. Included by exactly one source file:
// examples/common/cuda_kernels/kv_cache.cu.

#include <terrace/kernel/cuda/detail/grid.cuh>
#include <terrace/kernel/cuda/detail/page_table.cuh>
#include <terrace/kernel/cuda/kv_cache.hpp>
#include <terrace/shim/cuda.hpp>

#include <cuda_fp16.h>

#include <cstddef>
#include <cstdint>

namespace terrace::kernel::cuda {

namespace detail {

__device__ __forceinline__ void store_cached(std::byte* row,
                                             std::size_t i,
                                             bool half,
                                             float value) {
  if (half) {
    reinterpret_cast<__half*>(row)[i] = __float2half_rn(value);
  } else {
    reinterpret_cast<float*>(row)[i] = value;
  }
}

/// A thread per value; the keys of all tokens, then their values.
static __global__ void store_kv_kernel(attention_shape shape,
                                       decode_state const* __restrict__ state,
                                       float const* __restrict__ k,
                                       float const* __restrict__ v,
                                       page_table cache) {
  std::uint32_t const first = state->position;
  std::size_t const keys = shape.tokens * shape.kv_heads * shape.d_k;
  std::size_t const values = v == nullptr ? 0 : shape.tokens * shape.kv_heads * shape.d_v;
  for (std::size_t i = loop_first(); i < keys + values; i += loop_step()) {
    bool const is_key = i < keys;
    std::size_t const at = is_key ? i : i - keys;
    std::size_t const width = is_key ? shape.d_k : shape.d_v;
    std::size_t const row = at / width;
    auto const position = first + static_cast<std::uint32_t>(row / shape.kv_heads);
    if (position >= cache.positions) { continue; }
    std::size_t const head = row % shape.kv_heads;
    std::byte* const to = is_key ? cache.key(position, head) : cache.value(position, head);
    store_cached(to, at % width, cache.element_bytes == 2, is_key ? k[at] : v[at]);
  }
}

}  // namespace detail

void store_kv(stream_ref on,
              attention_shape const& shape,
              decode_state const* state,
              float const* k,
              float const* v,
              kv_pages const& cache) {
  cache.require(shape.first_position + shape.tokens);
  std::size_t const work =
      shape.tokens * shape.kv_heads * (shape.d_k + (v == nullptr ? 0 : shape.d_v));
  if (work == 0) { return; }
  shim::launch(detail::store_kv_kernel,
               {.grid = detail::loop_blocks(work), .block = detail::loop_threads},
               on,
               shape,
               state,
               k,
               v,
               detail::page_table{cache});
}

}  // namespace terrace::kernel::cuda
