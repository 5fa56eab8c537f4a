// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/stream_ref.hpp>

#include <cstddef>

namespace terrace::kernel::cuda {

/// y = weight * x / sqrt(mean(x^2) + eps), row by row, in float32; enqueues on `on`.
///
/// Shapes: x, y [tokens, cols], weight [cols] or null for ones; all on the device. y may be x.
///         The bits of a row depend on its values and `cols` only.
/// Errors: contract_error on the host's stream; cuda_error, device_lost.
void rms_norm(stream_ref on,
              float const* x,
              float const* weight,
              float eps,
              std::size_t tokens,
              std::size_t cols,
              float* y);

/// The same in place for the first `cols` values of each of `rows` rows that lie `stride` floats
/// apart; what follows them in a row stays.
void rms_norm_part(stream_ref on,
                   float* x,
                   std::size_t stride,
                   float const* weight,
                   float eps,
                   std::size_t rows,
                   std::size_t cols);

/// y = weight * x / sqrt(mean(x^2) + eps) * sigmoid(gate); x, gate, y [rows, cols]. y may be x.
void gated_norm(stream_ref on,
                float const* x,
                float const* weight,
                float const* gate,
                float eps,
                std::size_t rows,
                std::size_t cols,
                float* y);

}  // namespace terrace::kernel::cuda
