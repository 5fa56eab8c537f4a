// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/attention_shape.hpp>
#include <terrace/kernel/cuda/decode_state.hpp>
#include <terrace/kernel/cuda/detail/exponential.cuh>
#include <terrace/kernel/cuda/detail/page_table.cuh>

#include <cuda_runtime.h>

#include <cmath>
#include <cstddef>
#include <cstdint>

/// What all attention kernels share: how query rows are numbered and how splits are merged.
namespace terrace::kernel::cuda::detail {

/// Softmax over some positions: largest score and sum of exponentials relative to it. The weighted
/// values lie elsewhere.
struct softmax_state {
  float largest;
  float sum;
};

/// How the next split joins those before it: value = value * keep + next * take.
struct merge_step {
  softmax_state state;  ///< of all of them
  float keep;
  float take;
};

/// A split in which the row saw nothing (largest is minus infinity) changes nothing, not even a
/// zero's sign.
__device__ __forceinline__ merge_step merge(softmax_state running, softmax_state next) {
  if (next.largest == -INFINITY && next.sum == 0.0F) { return {running, 1, 0}; }
  float const largest = running.largest > next.largest ? running.largest : next.largest;
  float const keep = exponential(running.largest - largest);
  float const take = exponential(next.largest - largest);
  return {{largest, fmaf(running.sum, keep, __fmul_rn(next.sum, take))}, keep, take};
}
__device__ __forceinline__ float merged(merge_step const& step, float value, float next) {
  return step.take == 0.0F ? __fmul_rn(value, step.keep)
                           : fmaf(value, step.keep, __fmul_rn(next, step.take));
}

/// Consecutive query rows that share a key head. Row r of a key head is head r % group of token r /
/// group.
struct row_tile {
  std::uint32_t first;
  std::uint32_t rows;  ///< there; rows from here on repeat the last one and are not stored
  std::uint32_t kv_head;
  std::uint32_t position;  ///< of token 0
};

struct attend_work {
  attention_shape shape;
  decode_state const* state;
  float const* q;
  page_table cache;
  float* out;
  softmax_state* part_states;  ///< [tokens * heads, splits]
  float* part_values;          ///< [tokens * heads, splits, d_v]
  std::uint32_t splits;

  [[nodiscard]] __device__ std::uint32_t group() const {
    return static_cast<std::uint32_t>(shape.heads / shape.kv_heads);
  }
  [[nodiscard]] __device__ row_tile tile(std::uint32_t index,
                                         std::uint32_t kv_head,
                                         std::uint32_t rows) const {
    std::uint32_t const first = index * rows;
    auto const all = static_cast<std::uint32_t>(shape.tokens) * group();
    return {first, min(rows, all - first), kv_head, state->position};
  }
  /// Number of the query, token * heads + head.
  [[nodiscard]] __device__ std::size_t query(row_tile const& tile, std::uint32_t row) const {
    std::uint32_t const at = tile.first + min(row, tile.rows - 1);
    return static_cast<std::size_t>(at / group()) * shape.heads + tile.kv_head * group() +
           at % group();
  }
  /// Positions that a row sees: those below this.
  [[nodiscard]] __device__ std::uint32_t limit(row_tile const& tile, std::uint32_t row) const {
    std::uint32_t const at = tile.first + min(row, tile.rows - 1);
    return min(tile.position + at / group() + 1, cache.positions);
  }
  [[nodiscard]] __device__ std::size_t part(row_tile const& tile,
                                            std::uint32_t row,
                                            std::uint32_t split) const {
    return query(tile, row) * splits + split;
  }
};

/// out = the parts of one query merged: grid [tokens * heads], threads along the values.
static __global__ void merge_parts_kernel(attend_work work) {
  std::size_t const query = blockIdx.x;
  auto const token = static_cast<std::uint32_t>(query / work.shape.heads);
  std::uint32_t const limit = min(work.state->position + token + 1, work.cache.positions);
  auto const splits = static_cast<std::uint32_t>((limit + attention_split - 1) / attention_split);
  softmax_state const* const states = work.part_states + query * work.splits;
  std::size_t const d_v = work.shape.d_v;
  for (std::size_t i = threadIdx.x; i < d_v; i += blockDim.x) {
    float const* const values = work.part_values + query * work.splits * d_v + i;
    softmax_state running = states[0];
    float value = values[0];
#pragma unroll 4
    for (std::uint32_t split = 1; split < splits; ++split) {
      merge_step const step = merge(running, states[split]);
      value = merged(step, value, values[split * d_v]);
      running = step.state;
    }
    work.out[query * d_v + i] = value / running.sum;
  }
}

}  // namespace terrace::kernel::cuda::detail
