// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/kernel/cuda/detail/expert_faults.cuh>
#include <terrace/kernel/cuda/expert_ffn.hpp>

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

namespace terrace::kernel::cuda::detail {

/// Blocks: x columns, y tokens.
static __global__ void combine_kernel(expert_id const* __restrict__ ids,
                                      float const* __restrict__ gates,
                                      float const* __restrict__ rows,
                                      std::uint32_t top_k,
                                      std::uint32_t experts,
                                      std::uint32_t layer,
                                      std::size_t cols,
                                      float* __restrict__ sum,
                                      device_fault* fault) {
  std::size_t const column = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (column >= cols) { return; }
  std::size_t const token = blockIdx.y;
  float total = sum[token * cols + column];
  std::int64_t last = -1;
  for (std::uint32_t step = 0; step < top_k; ++step) {
    std::int64_t lowest = experts;
    std::uint32_t at = 0;
    for (std::uint32_t s = 0; s < top_k; ++s) {
      auto const id = static_cast<std::int64_t>(ids[token * top_k + s]);
      if (id > last && id < lowest) {
        lowest = id;
        at = s;
      }
    }
    if (lowest == experts) { break; }
    last = lowest;
    std::size_t const pair = token * top_k + at;
    float const value = rows[pair * cols + column];
    if (!isfinite(value)) {
      note_fault(fault, device_fault::not_finite, layer, static_cast<std::uint32_t>(lowest));
    }
    total = fmaf(gates[pair], value, total);
  }
  sum[token * cols + column] = total;
}

}  // namespace terrace::kernel::cuda::detail
