// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

/// The conversions of quant/half.hpp on a device, with their bits.
namespace terrace::kernel::cuda::detail {

__device__ __forceinline__ float bf16_value(std::uint32_t bits) {
  return __uint_as_float(bits << 16U);
}

/// FP8 E4M3FN.
__device__ __forceinline__ float e4m3_value(std::uint32_t code) {
  std::uint32_t const magnitude = code & 0x7FU;
  std::uint32_t const sign = (code & 0x80U) << 24U;
  float const small = __uint_as_float((magnitude << 20U) + (121U << 23U)) - 0x1.0p-6F;
  std::uint32_t bits = magnitude < 8U ? __float_as_uint(small) : (magnitude << 20U) + (120U << 23U);
  bits = magnitude == 0x7FU ? 0x7FC0'0000U : bits;
  return __uint_as_float(bits | sign);
}

/// Scale byte of an NVFP4 block.
__device__ __forceinline__ float ue4m3_value(std::uint32_t code) {
  std::uint32_t const magnitude = code & 0x7FU;
  float const value = magnitude < 8U ? static_cast<float>(magnitude) * 0x1.0p-9F
                                     : __uint_as_float((magnitude << 20U) + (120U << 23U));
  return code == 0x7FU ? 0.0F : value;
}

/// Half of the power of two an E8M0 byte stands for.
__device__ __forceinline__ float e8m0_half_value(std::uint32_t code) {
  return __uint_as_float(code < 2U ? 0x0020'0000U << code : (code - 1U) << 23U);
}

}  // namespace terrace::kernel::cuda::detail
