// SPDX-License-Identifier: Apache-2.0
#pragma once

// Defines what expert_ffn.hpp declares. Included by exactly one source file:
// examples/common/cuda_kernels/expert_ffn.cu.

#include <terrace/core/error.hpp>
#include <terrace/kernel/cuda/detail/combine_experts.cuh>
#include <terrace/kernel/cuda/detail/exact_experts.cuh>
#include <terrace/kernel/cuda/detail/launch_coded.cuh>
#include <terrace/kernel/cuda/detail/tensor_experts.cuh>
#include <terrace/kernel/cuda/expert_ffn.hpp>
#include <terrace/shim/cuda.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

namespace terrace::kernel::cuda {

namespace detail {

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

std::size_t expert_scratch_bytes(numerics mode,
                                 expert_shape const& shape,
                                 std::size_t tokens) noexcept {
  std::size_t const pairs = tokens * shape.top_k;
  if (detail::takes_codes(mode, shape, tokens)) {
    return detail::coded_scratch(shape, pairs).bytes;
  }
  std::size_t const exact = 2 * pairs * shape.gate.rows * sizeof(float);
  if (detail::takes_halves(mode, shape, tokens)) {
    return std::max(exact, detail::tensor_scratch{shape, pairs}.bytes);
  }
  return exact;
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
  if (x.tokens * shape.gate.rows * shape.down.rows == 0) { return; }
  detail::expert_call const call{on, shape, table, x, ids, rows, scratch, fault};
  if (detail::takes_codes(x.mode, shape, x.tokens)) {
    detail::coded_expert_rows(call);
  } else if (detail::takes_halves(x.mode, shape, x.tokens) && detail::multiplies_halves()) {
    detail::tensor_expert_rows(call);
  } else {
    detail::exact_expert_rows(call);
  }
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
