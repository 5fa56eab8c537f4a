// SPDX-License-Identifier: Apache-2.0
#pragma once

// Defines what elementwise.hpp declares. Included by exactly one source file:
// examples/common/cuda_kernels/elementwise.cu.

#include <terrace/kernel/cuda/elementwise.hpp>
#include <terrace/shim/cuda.hpp>

#include <cstddef>

namespace terrace::kernel::cuda {

namespace detail {

inline constexpr unsigned elementwise_threads = 256;
inline constexpr std::size_t elementwise_most_blocks = 1U << 20;

static __global__ void add_kernel(float const* __restrict__ x,
                                  std::size_t n,
                                  float* __restrict__ y) {
  std::size_t const stride = static_cast<std::size_t>(gridDim.x) * blockDim.x;
  for (std::size_t i = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < n;
       i += stride) {
    y[i] += x[i];
  }
}

}  // namespace detail

void add(stream_ref on, float const* x, std::size_t n, float* y) {
  if (n == 0) { return; }
  std::size_t const needed = (n + detail::elementwise_threads - 1) / detail::elementwise_threads;
  auto const blocks = static_cast<unsigned>(
      needed < detail::elementwise_most_blocks ? needed : detail::elementwise_most_blocks);
  shim::launch(
      detail::add_kernel, {.grid = blocks, .block = detail::elementwise_threads}, on, x, n, y);
}

}  // namespace terrace::kernel::cuda
