// SPDX-License-Identifier: Apache-2.0
#pragma once

// Defines what dequantise.hpp declares. Included by exactly one source file:
// examples/common/cuda_kernels/dequantise.cu.

#include <terrace/core/error.hpp>
#include <terrace/kernel/cuda/dequantise.hpp>
#include <terrace/kernel/cuda/detail/grid.cuh>
#include <terrace/kernel/cuda/detail/weights.cuh>
#include <terrace/shim/cuda.hpp>

#include <cstddef>
#include <cstdint>
#include <string>

namespace terrace::kernel::cuda {

namespace detail {

/// Which rows of a matrix go out: `first_row` and those after it, or those that `ids` name.
struct row_choice {
  std::int32_t const* ids;
  std::uint64_t first_row;
  std::uint64_t count;
};

/// An octet a thread.
template <quant_type Type>
static __global__ void dequantise_kernel(weights w, row_choice rows, float* __restrict__ out) {
  std::uint32_t const across = octets_in(w.cols);
  for (std::size_t i = loop_first(); i < rows.count * across; i += loop_step()) {
    std::size_t const to = i / across;
    auto const index = static_cast<std::uint32_t>(i % across);
    std::uint64_t const row =
        rows.ids == nullptr ? rows.first_row + to
                            : static_cast<std::uint64_t>(static_cast<std::int64_t>(rows.ids[to]));
    float values[8];
    if (row < w.rows) {
      decode_octet<Type>(w, row, index, values);
    } else {
      for (float& value : values) { value = __uint_as_float(0x7FC0'0000U); }
    }
    float* const at = out + to * w.cols + octet_elements * index;
#pragma unroll
    for (unsigned k = 0; k < octet_elements; ++k) {
      if (octet_elements * index + k < w.cols) { at[k] = values[k]; }
    }
  }
}

inline void dequantise_rows(stream_ref on,
                            matrix_view const& w,
                            row_choice const& rows,
                            float* out) {
  weights const from = weights_of(w);
  std::size_t const octets = rows.count * octets_in(from.cols);
  if (octets == 0) { return; }
  with_type(w.type, [&](auto type) {
    shim::launch(dequantise_kernel<decltype(type)::value>,
                 {.grid = loop_blocks(octets), .block = loop_threads},
                 on,
                 from,
                 rows,
                 out);
  });
}

}  // namespace detail

void dequantise(
    stream_ref on, matrix_view const& w, std::uint64_t first_row, std::uint64_t rows, float* out) {
  if (first_row > w.rows || rows > w.rows - first_row) {
    throw contract_error{"rows " + std::to_string(first_row) + " to " +
                         std::to_string(first_row + rows) + " are not in a matrix of " +
                         std::to_string(w.rows) + " rows"};
  }
  detail::dequantise_rows(on, w, {nullptr, first_row, rows}, out);
}

void embed(
    stream_ref on, matrix_view const& w, std::int32_t const* ids, std::size_t tokens, float* out) {
  detail::dequantise_rows(on, w, {ids, 0, tokens}, out);
}

}  // namespace terrace::kernel::cuda
