// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/block.hpp>
#include <terrace/kernel/cuda/detail/small_floats.cuh>
#include <terrace/kernel/cuda/detail/unaligned.cuh>

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

namespace terrace::kernel::cuda::detail {

[[nodiscard]] __host__ __device__ constexpr unsigned scale_width(quant_type type) {
  return type == quant_type::f32 ? 4U : type == quant_type::i8 ? 1U : 2U;
}
/// The scale at `from`; of an E8M0 byte, half of it.
__device__ __forceinline__ float scale_value(std::byte const* from, quant_type type) {
  switch (type) {
    case quant_type::f32:
      return __uint_as_float(load_word(from));
    case quant_type::f16:
      return half_value(load_u16(from));
    case quant_type::bf16:
      return bf16_value(load_u16(from));
    default:
      return e8m0_half_value(static_cast<std::uint8_t>(*from));
  }
}

/// Scales of a matrix that lie outside its elements, and the factor on all of it: what
/// quant::decode_rows multiplies decoded values by, with its roundings.
struct outer_scales {
  std::byte const* at;
  scale_grid grid;
  quant_type type;
  float multiplier;
  std::uint32_t across;  ///< scales side by side in a row of the grid

  /// For element [row, column] and those of its octet: no scale ends inside one.
  [[nodiscard]] __device__ __forceinline__ float scale(std::size_t row,
                                                       std::uint32_t column) const {
    std::size_t index = 0;
    if (grid == scale_grid::per_row) { index = row; }
    if (grid == scale_grid::per_block128) { index = row / 128 * across + column / 128; }
    if (grid == scale_grid::per_group32) { index = row * across + column / 32; }
    return scale_value(at + scale_width(type) * index, type);
  }

  /// Applies the scales to values that are decoded.
  __device__ __forceinline__ void apply(std::size_t row,
                                        std::uint32_t column,
                                        float (&values)[8]) const {
    if (grid != scale_grid::none) {
      float const unit = type == quant_type::i8 ? 2.0F : 1.0F;  // such scales are halves
      float const factor = scale(row, column);
#pragma unroll
      for (float& value : values) { value = __fmul_rn(unit * value, factor); }
    }
    if (multiplier != 1.0F) {
#pragma unroll
      for (float& value : values) { value = __fmul_rn(value, multiplier); }
    }
  }
};

[[nodiscard]] inline std::uint32_t scales_across(scale_grid grid, std::uint64_t cols) {
  return static_cast<std::uint32_t>(grid == scale_grid::per_block128 ? (cols + 127) / 128
                                                                     : cols / 32);
}

}  // namespace terrace::kernel::cuda::detail
