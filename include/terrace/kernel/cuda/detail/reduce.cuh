// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>

namespace terrace::kernel::cuda::detail {

inline constexpr unsigned warp_threads = 32;
inline constexpr unsigned all_lanes = 0xffffffffU;

/// The sum over a warp's lanes, in every lane: lanes 16 apart are paired first, then 8, 4, 2, 1.
/// Every lane gets the same bits, because a + b is b + a.
__device__ __forceinline__ float warp_sum(float value) {
  for (int apart = 16; apart > 0; apart /= 2) {
    value = value + __shfl_xor_sync(all_lanes, value, apart);
  }
  return value;
}
/// The largest value of a warp that is not NaN, in every lane.
__device__ __forceinline__ float warp_max(float value) {
  for (int apart = 16; apart > 0; apart /= 2) {
    value = fmaxf(value, __shfl_xor_sync(all_lanes, value, apart));
  }
  return value;
}

/// The sum over a block of whole warps, in every thread: each warp by `warp_sum`, then the warps in
/// ascending order. `part` has room for one float per warp; all threads of the block call it.
__device__ __forceinline__ float block_sum(float value, float* part) {
  float const mine = warp_sum(value);
  unsigned const warps = blockDim.x / warp_threads;
  if (warps == 1) { return mine; }
  __syncthreads();  // `part` may still be read for the sum before this one
  if (threadIdx.x % warp_threads == 0) { part[threadIdx.x / warp_threads] = mine; }
  __syncthreads();
  float sum = part[0];
  for (unsigned warp = 1; warp < warps; ++warp) { sum = sum + part[warp]; }
  return sum;
}

}  // namespace terrace::kernel::cuda::detail
