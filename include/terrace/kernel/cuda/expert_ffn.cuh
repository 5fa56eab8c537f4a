// SPDX-License-Identifier: Apache-2.0
#pragma once

// Defines what expert_ffn.hpp declares. Included by exactly one source file:
// examples/common/cuda_kernels/expert_ffn.cu.

#include <terrace/core/error.hpp>
#include <terrace/kernel/cuda/detail/exact_dots.cuh>
#include <terrace/kernel/cuda/detail/gated_value.cuh>
#include <terrace/kernel/cuda/detail/grid.cuh>
#include <terrace/kernel/cuda/detail/weights.cuh>
#include <terrace/kernel/cuda/expert_ffn.hpp>
#include <terrace/shim/cuda.hpp>

#include <cstddef>
#include <cstdint>
#include <string>

namespace terrace::kernel::cuda {

namespace detail {

/// One of the three matrices of every expert of a layer.
struct expert_matrix {
  std::size_t data_offset;
  std::size_t scale_offset;
  weights like;  ///< without addresses
  unsigned number;

  [[nodiscard]] __device__ weights of(expert_entry const& entry) const {
    weights one = like;
    one.data = entry.block + data_offset;
    one.scales.at = entry.block + scale_offset;
    one.scales.multiplier = entry.multiplier[number];
    return one;
  }
};

/// Products of pairs with the expert that each chose.
struct pair_work {
  expert_matrix w;
  expert_entry const* table;
  expert_id const* ids;
  std::uint32_t experts;
  std::uint32_t layer;
  float const* in;
  std::size_t in_stride;    ///< from one input to the next
  std::size_t pairs_an_in;  ///< pairs that share an input
  float* out;               ///< [pairs, rows]
  device_fault* fault;
};

static __device__ void note_fault(device_fault* fault,
                                  std::uint32_t kind,
                                  std::uint32_t layer,
                                  std::uint32_t expert) {
  if (atomicCAS(&fault->kind, 0U, kind) != 0U) { return; }
  fault->layer = layer;
  fault->expert = expert;
}

/// Blocks: x rows, y pairs.
template <quant_type Type>
static __global__ void __launch_bounds__(row_warps* warp_threads)
    pair_product_kernel(pair_work work) {
  std::uint64_t const row =
      static_cast<std::uint64_t>(blockIdx.x) * row_warps + threadIdx.x / warp_threads;
  std::size_t const pair = blockIdx.y;
  auto const expert = static_cast<std::uint32_t>(work.ids[pair]);
  if (expert >= work.experts) {
    if (threadIdx.x == 0 && blockIdx.x == 0) {
      note_fault(work.fault, device_fault::bad_expert, work.layer, expert);
    }
    return;
  }
  expert_entry const entry = work.table[expert];
  if (entry.block == nullptr || row >= work.w.like.rows) { return; }  // whole warps leave
  float const* const x[1] = {work.in + pair / work.pairs_an_in * work.in_stride};
  float sums[1];
  exact_dots<Type>(work.w.of(entry), row, x, 1U, sums);
  if (threadIdx.x % warp_threads == 0) { work.out[pair * work.w.like.rows + row] = sums[0]; }
}

static __global__ void activate_pairs_kernel(gated_activation how,
                                             float* __restrict__ gate,
                                             float const* __restrict__ up,
                                             std::size_t n) {
  for (std::size_t i = loop_first(); i < n; i += loop_step()) {
    gate[i] = gated_value(how, gate[i], up[i]);
  }
}

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

/// Errors: what weights_of throws.
[[nodiscard]] inline expert_matrix matrix_of_experts(matrix_layout const& layout, unsigned number) {
  check_layout(layout, true);
  return {.data_offset = layout.data_offset,
          .scale_offset = layout.scale_offset,
          .like = {nullptr,
                   layout.rows,
                   static_cast<std::uint32_t>(layout.cols),
                   {nullptr,
                    layout.grid,
                    layout.scale_type,
                    1.0F,
                    scales_across(layout.grid, layout.cols)}},
          .number = number};
}

inline void launch_pair_product(stream_ref on,
                                quant_type type,
                                pair_work const& work,
                                std::size_t pairs) {
  auto const blocks = static_cast<unsigned>((work.w.like.rows + row_warps - 1) / row_warps);
  with_type(type, [&](auto one) {
    shim::launch(
        pair_product_kernel<decltype(one)::value>,
        {.grid = dim3{blocks, static_cast<unsigned>(pairs)}, .block = row_warps * warp_threads},
        on,
        work);
  });
}

inline void check_shape(expert_shape const& shape) {
  bool const fits = shape.gate.rows == shape.up.rows && shape.gate.cols == shape.up.cols &&
                    shape.down.cols == shape.gate.rows && shape.top_k >= 1 &&
                    shape.top_k <= shape.experts;
  if (!fits) {
    throw contract_error{"experts of layer " + std::to_string(shape.layer) + " have matrices of " +
                         std::to_string(shape.gate.rows) + " x " + std::to_string(shape.gate.cols) +
                         ", " + std::to_string(shape.up.rows) + " x " +
                         std::to_string(shape.up.cols) + " and " + std::to_string(shape.down.rows) +
                         " x " + std::to_string(shape.down.cols) + ", " +
                         std::to_string(shape.top_k) + " of " + std::to_string(shape.experts) +
                         " chosen; these do not fit"};
  }
}

}  // namespace detail

std::size_t expert_scratch_bytes(numerics /*mode*/,
                                 expert_shape const& shape,
                                 std::size_t tokens) noexcept {
  return 2 * tokens * shape.top_k * shape.gate.rows * sizeof(float);
}

void expert_rows(stream_ref on,
                 expert_shape const& shape,
                 expert_entry const* table,
                 activations const& x,
                 expert_id const* ids,
                 float* rows,
                 void* scratch,
                 device_fault* fault) {
  detail::check_shape(shape);
  if (x.cols != shape.gate.cols) {
    throw contract_error{"experts of layer " + std::to_string(shape.layer) + " take " +
                         std::to_string(shape.gate.cols) + " values a token, not " +
                         std::to_string(x.cols)};
  }
  std::size_t const pairs = x.tokens * shape.top_k;
  std::size_t const inner = pairs * shape.gate.rows;
  if (inner * shape.down.rows == 0) { return; }
  auto* const gate = static_cast<float*>(scratch);
  float* const up = gate + inner;
  detail::pair_work work{.w = detail::matrix_of_experts(shape.gate, 0),
                         .table = table,
                         .ids = ids,
                         .experts = static_cast<std::uint32_t>(shape.experts),
                         .layer = shape.layer,
                         .in = x.values,
                         .in_stride = x.cols,
                         .pairs_an_in = shape.top_k,
                         .out = gate,
                         .fault = fault};
  detail::launch_pair_product(on, shape.gate.type, work, pairs);
  work.w = detail::matrix_of_experts(shape.up, 1);
  work.out = up;
  detail::launch_pair_product(on, shape.up.type, work, pairs);
  shim::launch(detail::activate_pairs_kernel,
               {.grid = detail::loop_blocks(inner), .block = detail::loop_threads},
               on,
               shape.activation,
               gate,
               static_cast<float const*>(up),
               inner);
  work.w = detail::matrix_of_experts(shape.down, 2);
  work.in = gate;
  work.in_stride = shape.gate.rows;
  work.pairs_an_in = 1;
  work.out = rows;
  detail::launch_pair_product(on, shape.down.type, work, pairs);
}

void combine(stream_ref on,
             expert_shape const& shape,
             expert_id const* ids,
             float const* gates,
             float const* rows,
             std::size_t tokens,
             float* sum,
             device_fault* fault) {
  detail::check_shape(shape);
  if (tokens * shape.down.rows == 0) { return; }
  constexpr unsigned threads = 256;
  auto const across = static_cast<unsigned>((shape.down.rows + threads - 1) / threads);
  shim::launch(detail::combine_kernel,
               {.grid = dim3{across, static_cast<unsigned>(tokens)}, .block = threads},
               on,
               ids,
               gates,
               rows,
               static_cast<std::uint32_t>(shape.top_k),
               static_cast<std::uint32_t>(shape.experts),
               shape.layer,
               static_cast<std::size_t>(shape.down.rows),
               sum,
               fault);
}

}  // namespace terrace::kernel::cuda
