// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/kernel/cuda/detail/reduce.cuh>
#include <terrace/kernel/cuda/detail/weights.cuh>

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

/// Products of a row of weights with float32 vectors, in the one order of `exact` numerics: lane
/// e % 32 of a warp takes octet e, ascending, and its elements, ascending, in one chain of fused
/// multiply-adds; `warp_sum` adds the lanes.
namespace terrace::kernel::cuda::detail {

/// Warps of a block, each with a row of weights.
inline constexpr unsigned row_warps = 8;
/// Most vectors that share what is decoded of a row.
inline constexpr unsigned exact_tile = 8;

/// Values [first, first + 8) of a vector of `cols`, zeros past its end.
__device__ __forceinline__ void load_values(float const* x,
                                            std::uint32_t first,
                                            std::uint32_t cols,
                                            float (&values)[8]) {
  if (first + 8 <= cols && reinterpret_cast<std::uintptr_t>(x) % sizeof(float4) == 0) {
    float4 const low = *reinterpret_cast<float4 const*>(x + first);
    float4 const high = *reinterpret_cast<float4 const*>(x + first + 4);
    values[0] = low.x, values[1] = low.y, values[2] = low.z, values[3] = low.w;
    values[4] = high.x, values[5] = high.y, values[6] = high.z, values[7] = high.w;
    return;
  }
#pragma unroll
  for (unsigned i = 0; i < 8; ++i) { values[i] = first + i < cols ? x[first + i] : 0.0F; }
}

/// sums[t] = row `row` of w times x[t] for the first `count` of `Tokens` vectors, in every lane of
/// the warp; the others are left as they are.
template <quant_type Type, unsigned Tokens>
__device__ __forceinline__ void exact_dots(weights const& w,
                                           std::size_t row,
                                           float const* const (&x)[Tokens],
                                           unsigned count,
                                           float (&sums)[Tokens]) {
  float parts[Tokens] = {};
  std::uint32_t const octets = octets_in(w.cols);
  // Numbers that need no decoding wait for memory alone: several are under way at a time.
  [[maybe_unused]] constexpr int under_way = plain_type<Type> && Tokens == 1 ? 4 : 1;
#pragma unroll under_way
  for (std::uint32_t index = threadIdx.x % warp_threads; index < octets; index += warp_threads) {
    float weight[octet_elements];
    decode_octet<Type>(w, row, index, weight);
#pragma unroll
    for (unsigned t = 0; t < Tokens; ++t) {
      if (t >= count) { break; }
      float values[octet_elements];
      load_values(x[t], octet_elements * index, w.cols, values);
#pragma unroll
      for (unsigned i = 0; i < octet_elements; ++i) {
        parts[t] = fmaf(weight[i], values[i], parts[t]);
      }
    }
  }
#pragma unroll
  for (unsigned t = 0; t < Tokens; ++t) {
    if (t < count) { sums[t] = warp_sum(parts[t]); }
  }
}

}  // namespace terrace::kernel::cuda::detail
