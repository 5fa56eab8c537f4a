// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/block.hpp>
#include <terrace/core/stream_ref.hpp>
#include <terrace/kernel/cuda/activations.hpp>

namespace terrace::kernel::cuda {

/// y [x.tokens, w.rows] = x w^T; enqueues on `on`.
///
/// w lies in memory that the stream's device reads, at any address; the aligned 16 bytes that hold
/// its first and last bytes must be readable too. Under `fast`, up to most_coded_tokens are
/// multiplied as codes where the type has blocks, with its usual scales; more of them as bfloat16,
/// weights rounded to it too, where the type has blocks or up to 16 bits and the device such tensor
/// cores. All else takes float32 values.
///
/// Ordering: the bits of y[t, r] depend on row r of w, on x[t] and on the numerics (`fast`: also on
///           whether the batch has more than most_coded_tokens), on nothing else.
/// Errors:   contract_error when w and x disagree, rows are no whole blocks, a scale grid has no
///           scales, or on the host's stream; not_supported for types nobody knows; cuda_error,
///           device_lost.
/// Cost:     reads w once for up to 8 tokens, under `fast` also for every 128.
void matmul(stream_ref on, matrix_view const& w, activations const& x, float* y);

}  // namespace terrace::kernel::cuda
