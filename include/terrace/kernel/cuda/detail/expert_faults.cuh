// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/kernel/cuda/expert_ffn.hpp>

#include <cuda_runtime.h>

#include <cstdint>

namespace terrace::kernel::cuda::detail {

/// Keeps the first fault.
__device__ __forceinline__ void note_fault(device_fault* fault,
                                           std::uint32_t kind,
                                           std::uint32_t layer,
                                           std::uint32_t expert) {
  if (atomicCAS(&fault->kind, 0U, kind) != 0U) { return; }
  fault->layer = layer;
  fault->expert = expert;
}

}  // namespace terrace::kernel::cuda::detail
