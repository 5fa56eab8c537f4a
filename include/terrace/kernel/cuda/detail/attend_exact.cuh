// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/kernel/cuda/attention.hpp>
#include <terrace/kernel/cuda/detail/attend_work.cuh>
#include <terrace/kernel/cuda/detail/exponential.cuh>
#include <terrace/kernel/cuda/detail/page_table.cuh>
#include <terrace/kernel/cuda/detail/reduce.cuh>

#include <cuda_runtime.h>

#include <cmath>
#include <cstddef>
#include <cstdint>

/// Attention in float32, in the one order that all calls share. Of a query row and a split:
///
///   score[j] = scale * (q . k[j])     one sum over dimensions, ascending
///   top = max score, w[j] = e^(score[j] - top)
///   sum = w[0] + w[1] + ...           lanes by warp_sum, then the eight warps ascending
///   value[i] = w[0] v[0][i] + ...     positions ascending
///
/// Splits are merged in ascending order by `merge_factors`.
namespace terrace::kernel::cuda::detail {

inline constexpr unsigned exact_threads = 256;  ///< one per position of a split
inline constexpr unsigned exact_warps = exact_threads / warp_threads;
inline constexpr unsigned exact_dims =
    16;  ///< dimensions of keys that are in shared memory at once
inline constexpr unsigned exact_pitch = 20;  ///< floats between keys there: 16-byte loads of eight
                                             ///< neighbours touch all banks once
static_assert(attention_split == exact_threads);

template <unsigned Rows>
struct exact_shared {
  float4 keys[exact_threads * exact_pitch / 4];
  float4 queries[Rows * exact_dims / 4];
  float4 weights[Rows * exact_threads / 4];
  float part[Rows][exact_warps];
  softmax_state split[Rows];    ///< of the split at hand
  softmax_state running[Rows];  ///< of all splits before it and itself
  merge_step step[Rows];
};

/// score[r] = q[r] . k of this thread's position, for the rows of a tile.
template <bool Half, unsigned Rows>
__device__ void exact_scores(attend_work const& work,
                             row_tile const& tile,
                             std::uint32_t begin,
                             std::uint32_t end,
                             exact_shared<Rows>& shared,
                             float (&score)[Rows]) {
  auto* const keys = reinterpret_cast<float*>(shared.keys);
  auto* const queries = reinterpret_cast<float*>(shared.queries);
  std::size_t const d_k = work.shape.d_k;
#pragma unroll
  for (unsigned r = 0; r < Rows; ++r) { score[r] = 0; }
  for (std::size_t d = 0; d < d_k; d += exact_dims) {
    __syncthreads();
    for (unsigned i = threadIdx.x; i < exact_threads * 4; i += exact_threads) {
      std::uint32_t const position = begin + i / 4;
      std::size_t const at = d + i % 4 * 4;
      float4 four{0, 0, 0, 0};
      if (position < end) {
        four = cached_four<Half>(work.cache.key(position, tile.kv_head), at, d_k);
      }
      *reinterpret_cast<float4*>(keys + i / 4 * exact_pitch + i % 4 * 4) = four;
    }
    for (unsigned i = threadIdx.x; i < Rows * exact_dims; i += exact_threads) {
      std::size_t const at = d + i % exact_dims;
      queries[i] = at < d_k ? work.q[work.query(tile, i / exact_dims) * d_k + at] : 0.0F;
    }
    __syncthreads();
#pragma unroll
    for (unsigned four = 0; four < exact_dims / 4; ++four) {
      float4 const k = shared.keys[threadIdx.x * (exact_pitch / 4) + four];
#pragma unroll
      for (unsigned r = 0; r < Rows; ++r) {
        float4 const q = shared.queries[r * (exact_dims / 4) + four];
        score[r] = fmaf(q.x, k.x, score[r]);
        score[r] = fmaf(q.y, k.y, score[r]);
        score[r] = fmaf(q.z, k.z, score[r]);
        score[r] = fmaf(q.w, k.w, score[r]);
      }
    }
  }
}

/// Scores -> shared.weights relative to the largest score of the split, and shared.split.
template <unsigned Rows>
__device__ void exact_softmax(attend_work const& work,
                              row_tile const& tile,
                              std::uint32_t begin,
                              exact_shared<Rows>& shared,
                              float (&score)[Rows]) {
  unsigned const warp = threadIdx.x / warp_threads;
  unsigned const lane = threadIdx.x % warp_threads;
  std::uint32_t const position = begin + threadIdx.x;
#pragma unroll
  for (unsigned r = 0; r < Rows; ++r) {
    bool const seen = position < work.limit(tile, r);
    score[r] = seen ? __fmul_rn(score[r], work.shape.scale) : -INFINITY;
    float const top = warp_max(score[r]);
    if (lane == 0) { shared.part[r][warp] = top; }
  }
  __syncthreads();
  float top[Rows];
#pragma unroll
  for (unsigned r = 0; r < Rows; ++r) {
    top[r] = shared.part[r][0];
    for (unsigned w = 1; w < exact_warps; ++w) { top[r] = fmaxf(top[r], shared.part[r][w]); }
  }
  __syncthreads();
#pragma unroll
  for (unsigned r = 0; r < Rows; ++r) {
    float const weight = score[r] == -INFINITY ? 0.0F : exponential(score[r] - top[r]);
    reinterpret_cast<float*>(shared.weights)[r * exact_threads + threadIdx.x] = weight;
    float const sum = warp_sum(weight);
    if (lane == 0) { shared.part[r][warp] = sum; }
    if (threadIdx.x == r) { shared.split[r].largest = top[r]; }
  }
  __syncthreads();
  if (threadIdx.x < Rows) {
    float sum = shared.part[threadIdx.x][0];
    for (unsigned w = 1; w < exact_warps; ++w) { sum = sum + shared.part[threadIdx.x][w]; }
    shared.split[threadIdx.x].sum = sum;
  }
}

/// Which values a thread sums: rows group, group + groups, ... of a tile, and `Wide` dimensions
/// `lanes` apart.
struct value_share {
  unsigned lanes;   ///< threads side by side along the dimensions, a power of two
  unsigned groups;  ///< of threads, each with its own rows
  unsigned first;   ///< dimension
  unsigned group;

  __device__ explicit value_share(std::size_t d_v) {
    lanes = warp_threads;
    while (lanes < exact_threads && lanes < d_v) { lanes *= 2; }
    groups = exact_threads / lanes;
    first = threadIdx.x % lanes;
    group = threadIdx.x / lanes;
  }
};

/// sum[w][r] = the weighted values of a split, for this thread's share.
template <bool Half, unsigned Rows, unsigned Wide>
__device__ void exact_values(attend_work const& work,
                             row_tile const& tile,
                             std::uint32_t begin,
                             std::uint32_t end,
                             exact_shared<Rows> const& shared,
                             value_share const& share,
                             float (&sum)[Wide][Rows]) {
  std::size_t const d_v = work.shape.d_v;
#pragma unroll
  for (unsigned w = 0; w < Wide; ++w) {
#pragma unroll
    for (unsigned r = 0; r < Rows; ++r) { sum[w][r] = 0; }
  }
  bool const all_seen = end <= work.limit(tile, 0);  // row 0 sees least
  for (std::uint32_t j = 0; begin + j < end; j += 4) {
    float value[4][Wide];
#pragma unroll
    for (unsigned n = 0; n < 4; ++n) {
      std::uint32_t const position = begin + j + n;
      std::byte const* const row =
          position < end ? work.cache.value(position, tile.kv_head) : nullptr;
#pragma unroll
      for (unsigned w = 0; w < Wide; ++w) {
        unsigned const i = share.first + w * share.lanes;
        value[n][w] = row != nullptr && i < d_v ? cached<Half>(row, i) : 0.0F;
      }
    }
#pragma unroll
    for (unsigned r = 0; r < Rows; ++r) {
      unsigned const row = share.group + r * share.groups;
      if (row >= Rows) { break; }
      float4 const weight = shared.weights[(row * exact_threads + j) / 4];
      float const each[4] = {weight.x, weight.y, weight.z, weight.w};
      std::uint32_t const limit = all_seen ? end : work.limit(tile, row);
#pragma unroll
      for (unsigned n = 0; n < 4; ++n) {
        // What a row does not see must not reach it, be it NaN.
        if (begin + j + n < limit && begin + j + n < end) {
#pragma unroll
          for (unsigned w = 0; w < Wide; ++w) { sum[w][r] = fmaf(each[n], value[n][w], sum[w][r]); }
        }
      }
    }
  }
}

/// A tile of query rows against one split of positions (`Whole` false: grid [splits, tiles,
/// kv_heads], results go to the parts) or against all of them (grid [tiles, kv_heads]).
template <bool Half, unsigned Rows, unsigned Wide, bool Whole>
static __global__ void __launch_bounds__(exact_threads) attend_exact_kernel(attend_work work) {
  __shared__ exact_shared<Rows> shared;
  row_tile const tile = Whole ? work.tile(gridDim.x - 1 - blockIdx.x, blockIdx.y, Rows)
                              : work.tile(blockIdx.y, blockIdx.z, Rows);
  std::uint32_t const limit = work.limit(tile, Rows - 1);
  std::uint32_t split = Whole ? 0 : blockIdx.x;
  if (split * exact_threads >= limit) { return; }
  value_share const share{work.shape.d_v};
  float total[Wide][Rows];
  for (; split * exact_threads < limit; ++split) {
    std::uint32_t const begin = split * exact_threads;
    std::uint32_t const end = min(begin + exact_threads, limit);
    float score[Rows];
    exact_scores<Half>(work, tile, begin, end, shared, score);
    exact_softmax(work, tile, begin, shared, score);
    __syncthreads();
    if (Whole && threadIdx.x < Rows) {
      shared.step[threadIdx.x] =
          split == 0 ? merge_step{shared.split[threadIdx.x], 0, 1}
                     : merge(shared.running[threadIdx.x], shared.split[threadIdx.x]);
      shared.running[threadIdx.x] = shared.step[threadIdx.x].state;
    }
    float sum[Wide][Rows];
    exact_values<Half, Rows, Wide>(work, tile, begin, end, shared, share, sum);
    if (!Whole) {
#pragma unroll
      for (unsigned r = 0; r < Rows; ++r) {
        unsigned const row = share.group + r * share.groups;
        if (row >= tile.rows) { break; }
        std::size_t const part = work.part(tile, row, split);
        if (share.first == 0) { work.part_states[part] = shared.split[row]; }
#pragma unroll
        for (unsigned w = 0; w < Wide; ++w) {
          unsigned const i = share.first + w * share.lanes;
          if (i < work.shape.d_v) { work.part_values[part * work.shape.d_v + i] = sum[w][r]; }
        }
      }
      return;
    }
    __syncthreads();
#pragma unroll
    for (unsigned r = 0; r < Rows; ++r) {
      unsigned const row = share.group + r * share.groups;
      if (row >= Rows) { break; }
      merge_step const step = shared.step[row];
#pragma unroll
      for (unsigned w = 0; w < Wide; ++w) {
        total[w][r] = split == 0 ? sum[w][r] : merged(step, total[w][r], sum[w][r]);
      }
    }
  }
#pragma unroll
  for (unsigned r = 0; r < Rows; ++r) {
    unsigned const row = share.group + r * share.groups;
    if (row >= tile.rows) { break; }
#pragma unroll
    for (unsigned w = 0; w < Wide; ++w) {
      unsigned const i = share.first + w * share.lanes;
      if (i < work.shape.d_v) {
        work.out[work.query(tile, row) * work.shape.d_v + i] =
            total[w][r] / shared.running[row].sum;
      }
    }
  }
}

}  // namespace terrace::kernel::cuda::detail
