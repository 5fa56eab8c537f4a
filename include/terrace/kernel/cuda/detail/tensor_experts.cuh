// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/kernel/cuda/detail/exact_experts.cuh>
#include <terrace/kernel/cuda/detail/gated_value.cuh>
#include <terrace/kernel/cuda/detail/sort_pairs.cuh>
#include <terrace/kernel/cuda/detail/tensor_product.cuh>

#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

/// Experts with bfloat16 inputs on tensor cores, more than eight tokens: pairs are sorted by expert
/// and multiplied in tiles of one expert.
namespace terrace::kernel::cuda::detail {

/// Gate and up of a tile lie side by side.
inline constexpr unsigned tile_gated_rows = tile_warps * warp_rows / 2;

struct tensor_pairs {
  expert_matrix w[2];  ///< one, or gate and up
  expert_entry const* table;
  sorted_pairs sorted;
  std::uint16_t const* halves;
  std::size_t pitch;
  std::uint32_t pairs_an_in;  ///< 0: inputs are in the order of the sorted pairs
  bool sorted_out;            ///< outputs too
  float* out;                 ///< [pairs, rows]
  gated_activation how;
  std::uint16_t* gated;  ///< [pairs, gated_pitch], of the sorted pairs, for gate and up
  std::size_t gated_pitch;
};

__device__ __forceinline__ void fill_frame(tile_frame& frame,
                                           tensor_pairs const& work,
                                           pair_tile const& tile) {
  if (threadIdx.x < tile.count) {
    std::uint32_t const place = tile.first + threadIdx.x;
    std::uint32_t const pair = work.sorted.order[place];
    frame.in[threadIdx.x] = work.pairs_an_in == 0 ? place : pair / work.pairs_an_in;
    frame.out[threadIdx.x] = work.sorted_out ? place : pair;
  }
  __syncthreads();
}

/// Writes what joins a warp's sums of gate and of up; zeros up to the pitch.
__device__ __forceinline__ void store_gated(tile_sums const& sums,
                                            tensor_pairs const& work,
                                            pair_tile const& tile,
                                            tile_rows<true> const& rows,
                                            float const (&multiplier)[2]) {
  constexpr unsigned apart = warp_rows / 16;  // from gate's sums to up's
  unsigned const lane = threadIdx.x % warp_threads;
  std::uint32_t const first =
      rows.first + threadIdx.x / warp_threads * (warp_rows / 2) + 2 * (lane % 4);
#pragma unroll
  for (unsigned m = 0; m < tile_inputs / 16; ++m) {
#pragma unroll
    for (unsigned half = 0; half < 2; ++half) {
      unsigned const input = 16 * m + 8 * half + lane / 4;
      if (input >= tile.count) { continue; }
      std::uint16_t* const to = work.gated + (tile.first + input) * work.gated_pitch;
#pragma unroll
      for (unsigned n = 0; n < apart; ++n) {
        std::uint32_t const row = first + 8 * n;
        if (row >= work.gated_pitch) { continue; }
        float values[2];
#pragma unroll
        for (unsigned i = 0; i < 2; ++i) {
          values[i] = row + i < rows.rows
                          ? gated_value(work.how,
                                        __fmul_rn(sums[m][n][2 * half + i], multiplier[0]),
                                        __fmul_rn(sums[m][n + apart][2 * half + i], multiplier[1]))
                          : 0.0F;
        }
        *reinterpret_cast<std::uint32_t*>(to + row) = bf16_pair(values[0], values[1]);
      }
    }
  }
}

/// Blocks: x tiles of rows, y tiles of pairs.
template <quant_type Type, bool Gated>
static __global__ void __launch_bounds__(tile_threads, 1) tensor_pairs_kernel(tensor_pairs work) {
  if constexpr (has_mma_k16) {
    __shared__ tile_frame frame;
    if (blockIdx.y >= *work.sorted.tile_count) { return; }
    pair_tile const tile = work.sorted.tiles[blockIdx.y];
    fill_frame(frame, work, tile);
    expert_entry const entry = work.table[tile.expert];
    weights const one = work.w[0].of(entry);
    weights const two = work.w[Gated ? 1 : 0].of(entry);
    tile_rows<Gated> const rows{{one.data, two.data},
                                {scales_only(one), scales_only(two)},
                                static_cast<std::uint32_t>(one.rows),
                                blockIdx.x * (Gated ? tile_gated_rows : tile_matrix_rows)};
    tile_sums sums = {};
    tile_walk<Type, Gated>{dynamic_shared<std::byte>(),
                           {work.halves, work.pitch, frame.in, tile.count},
                           rows,
                           one.cols}
        .run(sums);
    if constexpr (Gated) {
      store_gated(sums, work, tile, rows, {one.scales.multiplier, two.scales.multiplier});
    } else {
      store_sums(sums, frame, tile.count, rows, one.scales.multiplier, work.out);
    }
  } else {
    __trap();
  }
}

/// For gate and up of different types, which are multiplied one after the other.
static __global__ void gate_and_round_kernel(gated_activation how,
                                             float const* __restrict__ gate,
                                             float const* __restrict__ up,
                                             std::size_t pairs,
                                             std::size_t rows,
                                             std::size_t pitch,
                                             std::uint16_t* __restrict__ to) {
  for (std::size_t i = loop_first(); i < pairs * pitch; i += loop_step()) {
    std::size_t const row = i % pitch;
    std::size_t const at = i / pitch * rows + row;
    float const value = row < rows ? gated_value(how, gate[at], up[at]) : 0.0F;
    to[i] = __bfloat16_as_ushort(__float2bfloat16_rn(value));
  }
}

/// Experts whose counts fit the shared memory of the sort.
inline constexpr std::size_t most_sorted_experts = 8192;

[[nodiscard]] inline bool takes_halves(numerics mode,
                                       expert_shape const& shape,
                                       std::size_t tokens) {
  auto const takes = [](matrix_layout const& w) { return takes_halves(w.type, w.grid); };
  return mode == numerics::fast && tokens > most_coded_tokens &&
         shape.experts <= most_sorted_experts && takes(shape.gate) && takes(shape.up) &&
         takes(shape.down);
}

[[nodiscard]] inline bool share_a_walk(matrix_layout const& gate, matrix_layout const& up) {
  return gate.type == up.type && gate.grid == up.grid && gate.scale_type == up.scale_type;
}

/// What the scratch memory holds, in this order; parts begin at multiples of 16.
struct tensor_scratch {
  std::size_t pitch;  ///< of gated rows
  std::size_t tiles;  ///< at most
  std::size_t tiles_at, order_at, halves_at, rows_at, bytes;

  tensor_scratch(expert_shape const& shape, std::size_t pairs) {
    auto const padded = [](std::size_t size) { return (size + 15) / 16 * 16; };
    pitch = (shape.gate.rows + code_columns - 1) / code_columns * code_columns;
    tiles = sorted_pairs::most_tiles(pairs, shape.experts, tile_inputs);
    tiles_at = 16;  // after their number
    order_at = padded(tiles_at + tiles * sizeof(pair_tile));
    halves_at = padded(order_at + pairs * sizeof(std::uint32_t));
    rows_at = padded(halves_at + pairs * pitch * sizeof(std::uint16_t));
    bytes = rows_at;
    if (!share_a_walk(shape.gate, shape.up)) {
      bytes += 2 * pairs * shape.gate.rows * sizeof(float);
    }
  }
};

/// One product of all tiles, gated when `gated` is true.
inline void launch_tensor_pairs(
    stream_ref on, quant_type type, tensor_pairs const& work, bool gated, std::size_t tiles) {
  std::size_t const across = gated ? tile_gated_rows : tile_matrix_rows;
  auto const rows = static_cast<unsigned>((work.w[0].like.rows + across - 1) / across);
  with_type(type, [&](auto one) {
    constexpr quant_type kind = decltype(one)::value;
    if constexpr (tensor_type<kind>) {
      shim::launch(gated ? tensor_pairs_kernel<kind, true> : tensor_pairs_kernel<kind, false>,
                   {.grid = dim3{rows, static_cast<unsigned>(tiles)},
                    .block = tile_threads,
                    .shared_bytes = tile_segment<kind>::shared_bytes},
                   on,
                   work);
    }
  });
}

inline void tensor_expert_rows(expert_call const& call) {
  expert_shape const& shape = call.shape;
  std::size_t const pairs = call.x.tokens * shape.top_k;
  tensor_scratch const plan{shape, pairs};
  auto* const scratch = static_cast<std::byte*>(call.scratch);
  sorted_pairs const sorted{reinterpret_cast<std::uint32_t*>(scratch + plan.order_at),
                            reinterpret_cast<pair_tile*>(scratch + plan.tiles_at),
                            reinterpret_cast<std::uint32_t*>(scratch),
                            static_cast<std::uint32_t>(pairs)};
  shim::launch(sort_pairs_kernel,
               {.block = sort_threads, .shared_bytes = shape.experts * sizeof(std::uint32_t)},
               call.on,
               call.table,
               call.ids,
               static_cast<std::uint32_t>(shape.experts),
               shape.layer,
               tile_inputs,
               sorted,
               call.fault);
  auto* const halves = reinterpret_cast<std::uint16_t*>(scratch + plan.halves_at);
  tensor_pairs work{.w = {matrix_of_experts(shape.gate, 0), matrix_of_experts(shape.up, 1)},
                    .table = call.table,
                    .sorted = sorted,
                    .halves = call.x.halves,
                    .pitch = call.x.pitch,
                    .pairs_an_in = static_cast<std::uint32_t>(shape.top_k),
                    .sorted_out = true,
                    .out = reinterpret_cast<float*>(scratch + plan.rows_at),
                    .how = shape.activation,
                    .gated = halves,
                    .gated_pitch = plan.pitch};
  if (share_a_walk(shape.gate, shape.up)) {
    launch_tensor_pairs(call.on, shape.gate.type, work, true, plan.tiles);
  } else {
    float* const gate = work.out;
    launch_tensor_pairs(call.on, shape.gate.type, work, false, plan.tiles);
    work.w[0] = work.w[1];
    work.out = gate + pairs * shape.gate.rows;
    launch_tensor_pairs(call.on, shape.up.type, work, false, plan.tiles);
    shim::launch(gate_and_round_kernel,
                 {.grid = loop_blocks(pairs * plan.pitch), .block = loop_threads},
                 call.on,
                 shape.activation,
                 static_cast<float const*>(gate),
                 static_cast<float const*>(work.out),
                 pairs,
                 static_cast<std::size_t>(shape.gate.rows),
                 plan.pitch,
                 halves);
  }
  work.w[0] = matrix_of_experts(shape.down, 2);
  work.halves = halves;
  work.pitch = plan.pitch;
  work.pairs_an_in = 0;
  work.sorted_out = false;
  work.out = call.rows;
  launch_tensor_pairs(call.on, shape.down.type, work, false, plan.tiles);
}

}  // namespace terrace::kernel::cuda::detail
