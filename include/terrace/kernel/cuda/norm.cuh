// SPDX-License-Identifier: Apache-2.0
#pragma once

// Defines what norm.hpp declares. Included by exactly one source file:
// examples/common/cuda_kernels/norm.cu.

#include <terrace/kernel/cuda/detail/exponential.cuh>
#include <terrace/kernel/cuda/detail/reduce.cuh>
#include <terrace/kernel/cuda/norm.hpp>
#include <terrace/shim/cuda.hpp>

#include <cstddef>

namespace terrace::kernel::cuda {

namespace detail {

/// Threads for a row: a function of its length alone, because the order of the sum follows them.
[[nodiscard]] inline unsigned norm_threads(std::size_t cols) {
  unsigned threads = warp_threads;
  while (threads < 1024 && threads * 4 < cols) { threads *= 2; }
  return threads;
}

/// A block per row. Thread t sums the squares of values t, t + threads, ... in ascending order.
static __global__ void rms_norm_kernel(float const* x,
                                       std::size_t x_stride,
                                       float const* __restrict__ weight,
                                       float const* __restrict__ gate,
                                       float eps,
                                       std::size_t cols,
                                       float* y,
                                       std::size_t y_stride) {
  __shared__ float part[32];
  float const* const from = x + blockIdx.x * x_stride;
  float* const to = y + blockIdx.x * y_stride;
  float sum = 0;
  for (std::size_t i = threadIdx.x; i < cols; i += blockDim.x) {
    sum = fmaf(from[i], from[i], sum);
  }
  float const mean = block_sum(sum, part) / static_cast<float>(cols);
  float const factor = 1.0F / sqrtf(mean + eps);
  for (std::size_t i = threadIdx.x; i < cols; i += blockDim.x) {
    float const scaled = __fmul_rn(from[i], factor);
    float const weighted = weight == nullptr ? scaled : __fmul_rn(scaled, weight[i]);
    to[i] = gate == nullptr ? weighted : __fmul_rn(weighted, sigmoid(gate[blockIdx.x * cols + i]));
  }
}

inline void norm_rows(stream_ref on,
                      float const* x,
                      std::size_t x_stride,
                      float const* weight,
                      float const* gate,
                      float eps,
                      std::size_t rows,
                      std::size_t cols,
                      float* y,
                      std::size_t y_stride) {
  if (rows * cols == 0) { return; }
  shim::launch(rms_norm_kernel,
               {.grid = static_cast<unsigned>(rows), .block = norm_threads(cols)},
               on,
               x,
               x_stride,
               weight,
               gate,
               eps,
               cols,
               y,
               y_stride);
}

}  // namespace detail

void rms_norm(stream_ref on,
              float const* x,
              float const* weight,
              float eps,
              std::size_t tokens,
              std::size_t cols,
              float* y) {
  detail::norm_rows(on, x, cols, weight, nullptr, eps, tokens, cols, y, cols);
}

void rms_norm_part(stream_ref on,
                   float* x,
                   std::size_t stride,
                   float const* weight,
                   float eps,
                   std::size_t rows,
                   std::size_t cols) {
  detail::norm_rows(on, x, stride, weight, nullptr, eps, rows, cols, x, stride);
}

void gated_norm(stream_ref on,
                float const* x,
                float const* weight,
                float const* gate,
                float eps,
                std::size_t rows,
                std::size_t cols,
                float* y) {
  detail::norm_rows(on, x, cols, weight, gate, eps, rows, cols, y, cols);
}

}  // namespace terrace::kernel::cuda
