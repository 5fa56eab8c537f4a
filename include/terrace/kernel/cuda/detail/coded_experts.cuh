// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/gated_activation.hpp>
#include <terrace/kernel/cuda/detail/coded_product.cuh>
#include <terrace/kernel/cuda/detail/encode_codes.cuh>
#include <terrace/kernel/cuda/detail/expert_faults.cuh>
#include <terrace/kernel/cuda/detail/gated_value.cuh>
#include <terrace/kernel/cuda/expert_ffn.hpp>

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

namespace terrace::kernel::cuda::detail {

/// Most pairs of a launch: what a block's table of groups has room for.
inline constexpr unsigned most_grouped_pairs = 128;

/// Pairs [first, first + count) of a token and an expert that it chose.
struct pair_window {
  expert_entry const* table;
  expert_id const* ids;
  std::uint32_t experts;
  std::uint32_t layer;
  std::uint32_t first;
  std::uint32_t count;
  std::uint32_t pairs_an_in;  ///< pairs that share an input; 1: each has its own
  bool settled;  ///< ids, table and weights were there before the kernel before this one started
  device_fault* fault;
};

/// Pairs of a window by expert, in a block's shared memory. Absent experts are left out.
struct pair_groups {
  row_group groups[most_grouped_pairs];
  std::uint32_t chosen[most_grouped_pairs];
  unsigned before[stream_warps + 1];

  [[nodiscard]] __device__ unsigned count() const { return before[stream_warps]; }

  /// By all threads of the block. With Tokens == 1 every pair is a group.
  template <unsigned Tokens>
  __device__ __forceinline__ void fill(pair_window const& window) {
    constexpr std::uint32_t absent = 0xFFFF'FFFFU;
    unsigned const p = threadIdx.x;
    expert_entry entry{};
    std::uint32_t expert = absent;
    if (p < window.count) {
      auto const id = static_cast<std::uint32_t>(window.ids[window.first + p]);
      if (id < window.experts) {
        entry = window.table[id];
        expert = entry.block == nullptr ? absent : id;
      } else if (blockIdx.x == 0) {
        note_fault(window.fault, device_fault::bad_expert, window.layer, id);
      }
      chosen[p] = expert;
    }
    __syncthreads();
    unsigned alike = 0;
    if (Tokens > 1 && expert != absent) {
      for (unsigned q = 0; q < p; ++q) { alike += chosen[q] == expert ? 1 : 0; }
    }
    bool const leads = expert != absent && alike % Tokens == 0;
    unsigned const leaders = __ballot_sync(all_lanes, leads);
    unsigned const lane = p % warp_threads;
    if (lane == 0) { before[p / warp_threads + 1] = static_cast<unsigned>(__popc(leaders)); }
    if (p == 0) { before[0] = 0; }
    __syncthreads();
    if (p == 0) {
      for (unsigned warp = 0; warp < stream_warps; ++warp) { before[warp + 1] += before[warp]; }
    }
    __syncthreads();
    if (leads) {
      unsigned const earlier = static_cast<unsigned>(__popc(leaders & ((1U << lane) - 1U)));
      row_group& mine = groups[before[p / warp_threads] + earlier];
      mine.block = entry.block;
      for (unsigned i = 0; i < 3; ++i) { mine.multiplier[i] = entry.multiplier[i]; }
      unsigned members = 0;
      for (unsigned q = p; q < window.count && members < Tokens; ++q) {
        if (chosen[q] != expert) { continue; }
        mine.in[members] = static_cast<std::uint8_t>(
            window.pairs_an_in == 1 ? q : (window.first + q) / window.pairs_an_in);
        mine.out[members] = static_cast<std::uint8_t>(q);
        ++members;
      }
      mine.count = static_cast<std::uint8_t>(members);
    }
    __syncthreads();
  }
};

/// One matrix of every pair's expert.
template <quant_type Type, unsigned Tokens>
static __global__ void __launch_bounds__(stream_threads, stream_blocks<Tokens>)
    coded_pairs_kernel(coded_work work, pair_window window) {
  __shared__ pair_groups pairs;
  __shared__ typename units<Type>::tables tables;
  tables.fill();
  if (!window.settled) { wait_for_kernels_before(); }
  pairs.fill<Tokens>(window);
  multiply_groups<Type, Tokens>(work, pairs.groups, pairs.count(), tables);
}

/// Gate, up and what joins them, of every pair's expert.
struct gated_work {
  coded_matrix gate;
  coded_matrix up;
  coded_inputs in;
  gated_activation how;
  coded_rows to;  ///< the window's pairs
};

/// Rows that one block of threads takes at a time: what shares a scale when encoded.
inline constexpr unsigned gated_rows = code_columns;

/// Tiles of `gated_rows` rows, which the blocks of the grid take in turn; each warp does its share
/// of a tile, then one warp per input encodes it.
template <quant_type Type, unsigned Tokens>
struct gated_jobs {
  static constexpr unsigned warp_rows = gated_rows / stream_warps;
  gated_work const& work;
  pair_groups const& pairs;
  float (&hidden)[Tokens][gated_rows];

  [[nodiscard]] __device__ __forceinline__ unsigned tiles() const {
    return (work.gate.rows + gated_rows - 1) / gated_rows;
  }
  [[nodiscard]] __device__ __forceinline__ unsigned tile(unsigned job) const {
    return blockIdx.x + job / warp_rows * gridDim.x;
  }
  [[nodiscard]] __device__ __forceinline__ row_group const& group(unsigned job) const {
    return pairs.groups[tile(job) / tiles()];
  }
  [[nodiscard]] __device__ __forceinline__ unsigned row_in_tile(unsigned job) const {
    return threadIdx.x / warp_threads * warp_rows + job % warp_rows;
  }
  [[nodiscard]] __device__ __forceinline__ std::uint32_t row(unsigned job) const {
    return tile(job) % tiles() * gated_rows + row_in_tile(job);
  }

  [[nodiscard]] __device__ unsigned count() const {
    unsigned const all = pairs.count() * tiles();
    return all <= blockIdx.x ? 0 : ((all - blockIdx.x - 1) / gridDim.x + 1) * warp_rows;
  }
  [[nodiscard]] __device__ __forceinline__ row_pair pair(unsigned job) const {
    std::uint32_t const last = work.gate.rows - 1;
    std::uint32_t const wanted = row(job);
    std::uint32_t const one = wanted < last ? wanted : last;
    row_pair made;
    set_row<Type>(made, 0, work.gate, group(job), one);
    set_row<Type>(made, 1, work.up, group(job), one);
    return made;
  }
  [[nodiscard]] __device__ __forceinline__ row_inputs inputs(unsigned job) const {
    row_group const& one = group(job);
    return {work.in, one.in, one.count};
  }
  __device__ __forceinline__ void finish(unsigned job, float const (&sums)[2][Tokens]) const {
    row_group const& one = group(job);
    unsigned const lane = threadIdx.x % warp_threads;
#pragma unroll
    for (unsigned t = 0; t < Tokens; ++t) {
      if (t >= one.count) { break; }
      if (lane != t) { continue; }
      float const gate = __fmul_rn(sums[0][t], one.multiplier[0]);
      float const up = __fmul_rn(sums[1][t], one.multiplier[1]);
      hidden[t][row_in_tile(job)] =
          row(job) < work.gate.rows ? gated_value(work.how, gate, up) : 0.0F;
    }
    if ((job + 1) % warp_rows != 0) { return; }
    __syncthreads();
    unsigned const warp = threadIdx.x / warp_threads;
    if (warp < one.count) {
      std::size_t const at =
          static_cast<std::size_t>(one.out[warp]) * tiles() + tile(job) % tiles();
      work.to.write(at, lane, encode_group(hidden[warp][lane]));
    }
    __syncthreads();
  }
};

template <quant_type Type, unsigned Tokens>
static __global__ void __launch_bounds__(stream_threads, stream_blocks<Tokens>)
    coded_gate_kernel(gated_work work, pair_window window) {
  __shared__ pair_groups pairs;
  __shared__ typename units<Type>::tables tables;
  __shared__ float hidden[Tokens][gated_rows];
  tables.fill();
  wait_for_kernels_before();
  pairs.fill<Tokens>(window);
  std::byte* const ring =
      dynamic_shared<std::byte>() + threadIdx.x / warp_threads * ring_bytes<Type, Tokens>;
  gated_jobs<Type, Tokens> jobs{work, pairs, hidden};
  row_stream<Type, Tokens>{ring, work.gate.units, tables}.run(jobs);
}

}  // namespace terrace::kernel::cuda::detail
