// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/gated_activation.hpp>
#include <terrace/core/stream_ref.hpp>

#include <cstddef>
#include <cstdint>

/// Operations on values one by one. All pointers are memory that the stream's device reads and
/// writes; every call enqueues on `on` and returns. Errors of each: contract_error on the host's
/// stream; cuda_error, device_lost.
namespace terrace::kernel::cuda {

/// y[i] += x[i] for n values.
void add(stream_ref on, float const* x, std::size_t n, float* y);

/// y[i] = silu(gate[i]) * up[i], silu(x) = x / (1 + e^-x), with the CPU's bits. y may be gate or
/// up.
void swiglu(stream_ref on, float const* gate, float const* up, std::size_t n, float* y);

/// y[i] = the activation of gate[i] and up[i], with the CPU's bits. y may be gate or up.
void activate(stream_ref on,
              gated_activation const& how,
              float const* gate,
              float const* up,
              std::size_t n,
              float* y);

/// y[i] *= sigmoid(gate[i]), with the CPU's bits.
void multiply_sigmoid(stream_ref on, float const* gate, std::size_t n, float* y);

/// x[i] = 0 for n values.
void zero(stream_ref on, float* x, std::size_t n);

/// Copies `count` values of each of `rows` rows; rows lie `from_stride` and `to_stride` floats
/// apart.
void copy_columns(stream_ref on,
                  float const* from,
                  std::size_t from_stride,
                  float* to,
                  std::size_t to_stride,
                  std::size_t count,
                  std::size_t rows);

/// sum[tokens[i]] += weights[i] * rows[i], i ascending.
///
/// Shapes: rows [count, cols]; tokens, weights [count], on the device; sum [any, cols].
/// Cost:   reads rows once; `tokens` once per 64 threads of a column.
void add_weighted_rows(stream_ref on,
                       float const* rows,
                       std::uint32_t const* tokens,
                       float const* weights,
                       std::size_t count,
                       std::size_t cols,
                       float* sum);

}  // namespace terrace::kernel::cuda
