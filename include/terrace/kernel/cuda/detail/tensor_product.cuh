// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/kernel/cuda/activations.hpp>
#include <terrace/kernel/cuda/detail/tensor_tile.cuh>
#include <terrace/shim/cuda.hpp>

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

namespace terrace::kernel::cuda::detail {

/// Whether `fast` products of more than most_coded_tokens run on tensor cores: the layout is one
/// that files have. Others are multiplied with float32 values in both numerics.
[[nodiscard]] inline bool takes_halves(quant_type type, scale_grid grid) {
  bool const apart = type == quant_type::mxfp4_packed || type == quant_type::int4_g32;
  bool takes = false;
  with_type(type, [&](auto one) { takes = tensor_type<decltype(one)::value>; });
  return takes && (!apart || grid == scale_grid::per_group32);
}
/// Whether the current device has the tensor cores for it.
[[nodiscard]] inline bool multiplies_halves() {
  int device = 0;
  int major = 0;
  shim::check(cudaGetDevice(&device), "asking for the current CUDA device");
  shim::check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device),
              "asking for the compute capability");
  return major >= 8;
}

/// Columns of a tile of rows, for one matrix.
inline constexpr unsigned tile_matrix_rows = tile_warps * warp_rows;

/// Which rows of inputs and outputs a tile's inputs are.
struct tile_frame {
  std::uint32_t in[tile_inputs];
  std::uint32_t out[tile_inputs];
};

/// Writes a warp's sums: out[frame.out[i] * rows + row].
__device__ __forceinline__ void store_sums(tile_sums const& sums,
                                           tile_frame const& frame,
                                           unsigned count,
                                           tile_rows<false> const& rows,
                                           float multiplier,
                                           float* out) {
  unsigned const lane = threadIdx.x % warp_threads;
  std::uint32_t const first = rows.first + threadIdx.x / warp_threads * warp_rows + 2 * (lane % 4);
#pragma unroll
  for (unsigned m = 0; m < tile_inputs / 16; ++m) {
#pragma unroll
    for (unsigned half = 0; half < 2; ++half) {
      unsigned const input = 16 * m + 8 * half + lane / 4;
      if (input >= count) { continue; }
      float* const to = out + static_cast<std::size_t>(frame.out[input]) * rows.rows;
#pragma unroll
      for (unsigned n = 0; n < warp_rows / 8; ++n) {
#pragma unroll
        for (unsigned i = 0; i < 2; ++i) {
          std::uint32_t const row = first + 8 * n + i;
          if (row < rows.rows) { to[row] = __fmul_rn(sums[m][n][2 * half + i], multiplier); }
        }
      }
    }
  }
}

/// The address and scales of a matrix, its multiplier left out.
__device__ __forceinline__ outer_scales scales_only(weights const& w) {
  outer_scales made = w.scales;
  made.multiplier = 1.0F;
  return made;
}

/// One matrix and inputs in their order.
struct tensor_matrix {
  weights w;
  std::uint16_t const* halves;
  std::size_t pitch;
  std::uint32_t tokens;
  float* out;  ///< [tokens, w.rows]
};

/// Blocks: x tiles of rows, y tiles of inputs.
template <quant_type Type>
static __global__ void __launch_bounds__(tile_threads, 1) tensor_matrix_kernel(tensor_matrix work) {
  if constexpr (has_mma_k16) {
    __shared__ tile_frame frame;
    std::uint32_t const first = blockIdx.y * tile_inputs;
    std::uint32_t const left = work.tokens - first;
    unsigned const count = left < tile_inputs ? left : tile_inputs;
    if (threadIdx.x < tile_inputs) {
      frame.in[threadIdx.x] = first + threadIdx.x;
      frame.out[threadIdx.x] = first + threadIdx.x;
    }
    __syncthreads();
    outer_scales const scales = scales_only(work.w);
    tile_rows<false> const rows{{work.w.data, work.w.data},
                                {scales, scales},
                                static_cast<std::uint32_t>(work.w.rows),
                                blockIdx.x * tile_matrix_rows};
    tile_sums sums = {};
    tile_walk<Type, false>{
        dynamic_shared<std::byte>(), {work.halves, work.pitch, frame.in, count}, rows, work.w.cols}
        .run(sums);
    store_sums(sums, frame, count, rows, work.w.scales.multiplier, work.out);
  } else {
    __trap();
  }
}

}  // namespace terrace::kernel::cuda::detail
