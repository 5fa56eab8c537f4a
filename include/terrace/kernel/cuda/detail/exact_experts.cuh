// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/kernel/cuda/detail/exact_dots.cuh>
#include <terrace/kernel/cuda/detail/expert_faults.cuh>
#include <terrace/kernel/cuda/detail/gated_value.cuh>
#include <terrace/kernel/cuda/detail/grid.cuh>
#include <terrace/kernel/cuda/detail/weights.cuh>
#include <terrace/kernel/cuda/expert_ffn.hpp>
#include <terrace/shim/cuda.hpp>

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

/// Experts with float32 inputs: a row of weights is read for each pair that chose its expert.
namespace terrace::kernel::cuda::detail {

/// One of the three matrices of every expert of a layer.
struct expert_matrix {
  std::size_t data_offset;
  std::size_t scale_offset;
  weights like;  ///< without addresses
  unsigned number;

  [[nodiscard]] __device__ weights of(expert_entry const& entry) const {
    weights one = like;
    one.data = entry.block + data_offset;
    one.scales.at = entry.block + scale_offset;
    one.scales.multiplier = entry.multiplier[number];
    return one;
  }
};

/// Products of pairs with the expert that each chose.
struct pair_work {
  expert_matrix w;
  expert_entry const* table;
  expert_id const* ids;
  std::uint32_t experts;
  std::uint32_t layer;
  float const* in;
  std::size_t in_stride;    ///< from one input to the next
  std::size_t pairs_an_in;  ///< pairs that share an input
  float* out;               ///< [pairs, rows]
  device_fault* fault;
};

/// Blocks: x rows, y pairs.
template <quant_type Type>
static __global__ void __launch_bounds__(row_warps* warp_threads)
    pair_product_kernel(pair_work work) {
  std::uint64_t const row =
      static_cast<std::uint64_t>(blockIdx.x) * row_warps + threadIdx.x / warp_threads;
  std::size_t const pair = blockIdx.y;
  auto const expert = static_cast<std::uint32_t>(work.ids[pair]);
  if (expert >= work.experts) {
    if (threadIdx.x == 0 && blockIdx.x == 0) {
      note_fault(work.fault, device_fault::bad_expert, work.layer, expert);
    }
    return;
  }
  expert_entry const entry = work.table[expert];
  if (entry.block == nullptr || row >= work.w.like.rows) { return; }  // whole warps leave
  float const* const x[1] = {work.in + pair / work.pairs_an_in * work.in_stride};
  float sums[1];
  exact_dots<Type>(work.w.of(entry), row, x, 1U, sums);
  if (threadIdx.x % warp_threads == 0) { work.out[pair * work.w.like.rows + row] = sums[0]; }
}

static __global__ void activate_pairs_kernel(gated_activation how,
                                             float* __restrict__ gate,
                                             float const* __restrict__ up,
                                             std::size_t n) {
  for (std::size_t i = loop_first(); i < n; i += loop_step()) {
    gate[i] = gated_value(how, gate[i], up[i]);
  }
}

/// Errors: what weights_of throws.
[[nodiscard]] inline expert_matrix matrix_of_experts(matrix_layout const& layout, unsigned number) {
  check_layout(layout, true);
  return {.data_offset = layout.data_offset,
          .scale_offset = layout.scale_offset,
          .like = {nullptr,
                   layout.rows,
                   static_cast<std::uint32_t>(layout.cols),
                   {nullptr,
                    layout.grid,
                    layout.scale_type,
                    1.0F,
                    scales_across(layout.grid, layout.cols)}},
          .number = number};
}

inline void launch_pair_product(stream_ref on,
                                quant_type type,
                                pair_work const& work,
                                std::size_t pairs) {
  auto const blocks = static_cast<unsigned>((work.w.like.rows + row_warps - 1) / row_warps);
  with_type(type, [&](auto one) {
    shim::launch(
        pair_product_kernel<decltype(one)::value>,
        {.grid = dim3{blocks, static_cast<unsigned>(pairs)}, .block = row_warps * warp_threads},
        on,
        work);
  });
}

/// What expert_rows is asked for.
struct expert_call {
  stream_ref on;
  expert_shape const& shape;
  expert_entry const* table;
  activations const& x;
  expert_id const* ids;
  float* rows;
  void* scratch;
  device_fault* fault;
};

inline void exact_expert_rows(expert_call const& call) {
  std::size_t const pairs = call.x.tokens * call.shape.top_k;
  std::size_t const inner = pairs * call.shape.gate.rows;
  auto* const gate = static_cast<float*>(call.scratch);
  float* const up = gate + inner;
  pair_work work{.w = matrix_of_experts(call.shape.gate, 0),
                 .table = call.table,
                 .ids = call.ids,
                 .experts = static_cast<std::uint32_t>(call.shape.experts),
                 .layer = call.shape.layer,
                 .in = call.x.values,
                 .in_stride = call.x.cols,
                 .pairs_an_in = call.shape.top_k,
                 .out = gate,
                 .fault = call.fault};
  launch_pair_product(call.on, call.shape.gate.type, work, pairs);
  work.w = matrix_of_experts(call.shape.up, 1);
  work.out = up;
  launch_pair_product(call.on, call.shape.up.type, work, pairs);
  shim::launch(activate_pairs_kernel,
               {.grid = loop_blocks(inner), .block = loop_threads},
               call.on,
               call.shape.activation,
               gate,
               static_cast<float const*>(up),
               inner);
  work.w = matrix_of_experts(call.shape.down, 2);
  work.in = gate;
  work.in_stride = call.shape.gate.rows;
  work.pairs_an_in = 1;
  work.out = call.rows;
  launch_pair_product(call.on, call.shape.down.type, work, pairs);
}

}  // namespace terrace::kernel::cuda::detail
