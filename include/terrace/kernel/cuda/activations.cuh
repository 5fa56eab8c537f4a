// SPDX-License-Identifier: Apache-2.0
#pragma once

// Defines what activations.hpp declares. Included by exactly one source file:
// examples/common/cuda_kernels/activations.cu.

#include <terrace/kernel/cuda/activations.hpp>
#include <terrace/kernel/cuda/detail/device.cuh>
#include <terrace/kernel/cuda/detail/encode_codes.cuh>
#include <terrace/kernel/cuda/detail/grid.cuh>
#include <terrace/shim/cuda.hpp>

#include <cuda_bf16.h>

#include <cstddef>
#include <cstdint>

namespace terrace::kernel::cuda {

namespace detail {

[[nodiscard]] inline std::size_t code_pitch(std::size_t cols) {
  return (cols + code_columns - 1) / code_columns * code_columns;
}

/// A warp per group of 32 columns.
static __global__ void encode_kernel(float const* __restrict__ x,
                                     std::size_t tokens,
                                     std::size_t cols,
                                     coded_rows to) {
  let_next_kernel_start();
  unsigned const lane = threadIdx.x % warp_threads;
  std::size_t const groups = (cols + code_columns - 1) / code_columns;
  std::size_t const group = loop_first() / warp_threads;
  if (group >= tokens * groups) { return; }  // whole warps leave
  std::size_t const column = group % groups * code_columns + lane;
  float const value = column < cols ? x[group / groups * cols + column] : 0.0F;
  to.write(group, lane, encode_group(value));
}

static __global__ void round_kernel(float const* __restrict__ x,
                                    std::size_t tokens,
                                    std::size_t cols,
                                    std::size_t pitch,
                                    std::uint16_t* __restrict__ halves) {
  for (std::size_t i = loop_first(); i < tokens * pitch; i += loop_step()) {
    std::size_t const column = i % pitch;
    float const value = column < cols ? x[i / pitch * cols + column] : 0.0F;
    halves[i] = __bfloat16_as_ushort(__float2bfloat16_rn(value));
  }
}

}  // namespace detail

std::size_t prepared_bytes(numerics mode, std::size_t tokens, std::size_t cols) noexcept {
  if (mode == numerics::exact) { return 0; }
  std::size_t const values = tokens * detail::code_pitch(cols);
  if (tokens > most_coded_tokens) { return values * sizeof(std::uint16_t); }
  return values + values / code_columns * (sizeof(float) + sizeof(std::uint32_t));
}

activations prepare(stream_ref on,
                    numerics mode,
                    float const* x,
                    std::size_t tokens,
                    std::size_t cols,
                    void* memory) {
  activations made{
      .values = x, .tokens = tokens, .cols = cols, .pitch = detail::code_pitch(cols), .mode = mode};
  std::size_t const values = tokens * made.pitch;
  if (mode == numerics::exact || values == 0) { return made; }
  if (tokens > most_coded_tokens) {
    auto* const halves = static_cast<std::uint16_t*>(memory);
    made.halves = halves;
    shim::launch(detail::round_kernel,
                 {.grid = detail::loop_blocks(values), .block = detail::loop_threads},
                 on,
                 x,
                 tokens,
                 cols,
                 made.pitch,
                 halves);
    return made;
  }
  auto const to = detail::coded_rows::in(memory, values);
  made.codes = to.codes;
  made.scales = to.scales;
  made.sums = to.sums;
  shim::launch(detail::encode_kernel,
               {.grid = detail::loop_blocks(values), .block = detail::loop_threads},
               on,
               x,
               tokens,
               cols,
               to);
  return made;
}

}  // namespace terrace::kernel::cuda
