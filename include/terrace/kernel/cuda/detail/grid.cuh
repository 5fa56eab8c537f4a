// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>

#include <cstddef>

namespace terrace::kernel::cuda::detail {

/// Threads of a block where a kernel's threads work alone.
inline constexpr unsigned loop_threads = 256;

/// Blocks for `n` pieces of work, one per thread; the threads loop when there are more than fit.
[[nodiscard]] inline unsigned loop_blocks(std::size_t n) {
  constexpr std::size_t most = std::size_t{1} << 20U;
  std::size_t const needed = (n + loop_threads - 1) / loop_threads;
  return static_cast<unsigned>(needed < most ? needed : most);
}

/// This thread's first piece of work, and how far the next one is.
__device__ __forceinline__ std::size_t loop_first() {
  return static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ __forceinline__ std::size_t loop_step() {
  return static_cast<std::size_t>(gridDim.x) * blockDim.x;
}

}  // namespace terrace::kernel::cuda::detail
