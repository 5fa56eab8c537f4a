// SPDX-License-Identifier: Apache-2.0
#pragma once

// Defines what elementwise.hpp declares. Included by exactly one source file:
// examples/common/cuda_kernels/elementwise.cu.

#include <terrace/kernel/cuda/detail/exponential.cuh>
#include <terrace/kernel/cuda/detail/gated_value.cuh>
#include <terrace/kernel/cuda/detail/grid.cuh>
#include <terrace/kernel/cuda/elementwise.hpp>
#include <terrace/shim/cuda.hpp>

#include <cstddef>
#include <cstdint>

namespace terrace::kernel::cuda {

namespace detail {

/// Whether all of these may be read and written four floats at a time.
template <class... Pointers>
[[nodiscard]] bool four_aligned(Pointers... pointers) {
  return ((reinterpret_cast<std::uintptr_t>(pointers) % sizeof(float4) == 0) && ...);
}

// No __restrict__: y may be gate or up.
template <bool Four>
static __global__ void swiglu_kernel(float const* gate, float const* up, std::size_t n, float* y) {
  if constexpr (Four) {
    for (std::size_t i = 4 * loop_first(); i + 4 <= n; i += 4 * loop_step()) {
      float4 const g = *reinterpret_cast<float4 const*>(gate + i);
      float4 const u = *reinterpret_cast<float4 const*>(up + i);
      *reinterpret_cast<float4*>(y + i) = {swiglu_value(g.x, u.x),
                                           swiglu_value(g.y, u.y),
                                           swiglu_value(g.z, u.z),
                                           swiglu_value(g.w, u.w)};
    }
  } else {
    for (std::size_t i = loop_first(); i < n; i += loop_step()) {
      y[i] = swiglu_value(gate[i], up[i]);
    }
  }
}

// No __restrict__: y may be gate or up.
static __global__ void activate_kernel(
    gated_activation how, float const* gate, float const* up, std::size_t n, float* y) {
  for (std::size_t i = loop_first(); i < n; i += loop_step()) {
    y[i] = gated_value(how, gate[i], up[i]);
  }
}

static __global__ void multiply_sigmoid_kernel(float const* __restrict__ gate,
                                               std::size_t n,
                                               float* __restrict__ y) {
  for (std::size_t i = loop_first(); i < n; i += loop_step()) {
    y[i] = __fmul_rn(y[i], sigmoid(gate[i]));
  }
}

template <bool Four>
static __global__ void add_kernel(float const* __restrict__ x,
                                  std::size_t n,
                                  float* __restrict__ y) {
  if constexpr (Four) {
    for (std::size_t i = 4 * loop_first(); i + 4 <= n; i += 4 * loop_step()) {
      float4 const a = *reinterpret_cast<float4 const*>(x + i);
      float4 const b = *reinterpret_cast<float4 const*>(y + i);
      *reinterpret_cast<float4*>(y + i) = {b.x + a.x, b.y + a.y, b.z + a.z, b.w + a.w};
    }
  } else {
    for (std::size_t i = loop_first(); i < n; i += loop_step()) { y[i] += x[i]; }
  }
}

static __global__ void copy_columns_kernel(float const* __restrict__ from,
                                           std::size_t from_stride,
                                           float* __restrict__ to,
                                           std::size_t to_stride,
                                           std::size_t count,
                                           std::size_t rows) {
  for (std::size_t i = loop_first(); i < count * rows; i += loop_step()) {
    std::size_t const row = i / count;
    std::size_t const column = i % count;
    to[row * to_stride + column] = from[row * from_stride + column];
  }
}

/// Blocks of one row of the grid share the tokens of that row: token % gridDim.y == blockIdx.y.
static __global__ void add_weighted_rows_kernel(float const* __restrict__ rows,
                                                std::uint32_t const* __restrict__ tokens,
                                                float const* __restrict__ weights,
                                                std::size_t count,
                                                std::size_t cols,
                                                float* __restrict__ sum) {
  for (std::size_t column = loop_first(); column < cols; column += loop_step()) {
    for (std::size_t i = 0; i < count; ++i) {
      std::uint32_t const token = tokens[i];
      if (token % gridDim.y != blockIdx.y) { continue; }
      float* const at = sum + token * cols + column;
      *at = fmaf(weights[i], rows[i * cols + column], *at);
    }
  }
}

}  // namespace detail

void add(stream_ref on, float const* x, std::size_t n, float* y) {
  if (n == 0) { return; }
  if (n % 4 == 0 && detail::four_aligned(x, y)) {
    shim::launch(detail::add_kernel<true>,
                 {.grid = detail::loop_blocks(n / 4), .block = detail::loop_threads},
                 on,
                 x,
                 n,
                 y);
  } else {
    shim::launch(detail::add_kernel<false>,
                 {.grid = detail::loop_blocks(n), .block = detail::loop_threads},
                 on,
                 x,
                 n,
                 y);
  }
}

void swiglu(stream_ref on, float const* gate, float const* up, std::size_t n, float* y) {
  if (n == 0) { return; }
  if (n % 4 == 0 && detail::four_aligned(gate, up, y)) {
    shim::launch(detail::swiglu_kernel<true>,
                 {.grid = detail::loop_blocks(n / 4), .block = detail::loop_threads},
                 on,
                 gate,
                 up,
                 n,
                 y);
  } else {
    shim::launch(detail::swiglu_kernel<false>,
                 {.grid = detail::loop_blocks(n), .block = detail::loop_threads},
                 on,
                 gate,
                 up,
                 n,
                 y);
  }
}

void activate(stream_ref on,
              gated_activation const& how,
              float const* gate,
              float const* up,
              std::size_t n,
              float* y) {
  if (how.type == gated_activation::kind::swiglu) { return swiglu(on, gate, up, n, y); }
  if (n == 0) { return; }
  shim::launch(detail::activate_kernel,
               {.grid = detail::loop_blocks(n), .block = detail::loop_threads},
               on,
               how,
               gate,
               up,
               n,
               y);
}

void multiply_sigmoid(stream_ref on, float const* gate, std::size_t n, float* y) {
  if (n == 0) { return; }
  shim::launch(detail::multiply_sigmoid_kernel,
               {.grid = detail::loop_blocks(n), .block = detail::loop_threads},
               on,
               gate,
               n,
               y);
}

void zero(stream_ref on, float* x, std::size_t n) {
  if (n > 0) { shim::fill(on, x, 0, n * sizeof(float)); }
}

void copy_columns(stream_ref on,
                  float const* from,
                  std::size_t from_stride,
                  float* to,
                  std::size_t to_stride,
                  std::size_t count,
                  std::size_t rows) {
  if (count * rows == 0) { return; }
  shim::launch(detail::copy_columns_kernel,
               {.grid = detail::loop_blocks(count * rows), .block = detail::loop_threads},
               on,
               from,
               from_stride,
               to,
               to_stride,
               count,
               rows);
}

void add_weighted_rows(stream_ref on,
                       float const* rows,
                       std::uint32_t const* tokens,
                       float const* weights,
                       std::size_t count,
                       std::size_t cols,
                       float* sum) {
  if (count * cols == 0) { return; }
  constexpr std::size_t most_rows_of_blocks = 64;
  auto const y = static_cast<unsigned>(count < most_rows_of_blocks ? count : most_rows_of_blocks);
  shim::launch(detail::add_weighted_rows_kernel,
               {.grid = dim3{detail::loop_blocks(cols), y}, .block = detail::loop_threads},
               on,
               rows,
               tokens,
               weights,
               count,
               cols,
               sum);
}

}  // namespace terrace::kernel::cuda
