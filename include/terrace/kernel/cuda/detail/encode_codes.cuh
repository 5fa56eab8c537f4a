// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/kernel/cuda/activations.hpp>
#include <terrace/kernel/cuda/detail/reduce.cuh>

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

/// Rounding of float32 values to 8-bit codes, with the bits of kernel/cpu/detail/int8_rows.hpp.
namespace terrace::kernel::cuda::detail {

/// One lane's code of a group of 32, and what the group shares.
struct group_code {
  int code;
  float scale;
  std::uint32_t sums;  ///< as in activations
};

/// Encodes a group, a value in each lane of a warp.
__device__ __forceinline__ group_code encode_group(float value) {
  std::uint32_t largest = __float_as_uint(value) & 0x7FFF'FFFFU;  // what is not finite is larger
  for (int apart = 16; apart > 0; apart /= 2) {
    std::uint32_t const other = __shfl_xor_sync(all_lanes, largest, apart);
    largest = other > largest ? other : largest;
  }
  bool const finite = largest < 0x7F80'0000U;
  float const unit = __uint_as_float(largest) / 127.0F;
  bool const coded = finite && unit >= 0x1p-126F;
  float const inverse = 127.0F / __uint_as_float(largest);
  int const code = coded ? __float2int_rn(__fmul_rn(value, inverse)) : 0;
  int sum = code;
  for (int apart = 8; apart > 0; apart /= 2) { sum += __shfl_xor_sync(all_lanes, sum, apart); }
  int const low = __shfl_sync(all_lanes, sum, 0);
  int const high = __shfl_sync(all_lanes, sum, 16);
  float const none = finite ? 0.0F : __uint_as_float(0x7FC0'0000U);
  return {code,
          coded ? unit : none,
          (static_cast<std::uint32_t>(low) & 0xFFFFU) | (static_cast<std::uint32_t>(high) << 16U)};
}

/// Where groups of codes go, one after the other.
struct coded_rows {
  std::int8_t* codes;
  float* scales;
  std::uint32_t* sums;

  /// Lays `values` codes and what belongs to them out in memory.
  [[nodiscard]] static coded_rows in(void* memory, std::size_t values) {
    auto* const codes = static_cast<std::int8_t*>(memory);
    auto* const scales = reinterpret_cast<float*>(codes + values);
    return {codes, scales, reinterpret_cast<std::uint32_t*>(scales + values / code_columns)};
  }

  /// Group `group` and those after it.
  [[nodiscard]] coded_rows from_group(std::size_t group) const {
    return {codes + group * code_columns, scales + group, sums + group};
  }

  __device__ __forceinline__ void write(std::size_t group,
                                        unsigned lane,
                                        group_code const& one) const {
    codes[group * code_columns + lane] = static_cast<std::int8_t>(one.code);
    if (lane == 0) {
      scales[group] = one.scale;
      sums[group] = one.sums;
    }
  }
};

}  // namespace terrace::kernel::cuda::detail
