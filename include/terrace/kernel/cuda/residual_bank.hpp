// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/stream_ref.hpp>

#include <cstddef>
#include <span>

namespace terrace::kernel::cuda {

/// Most candidates of a residual bank: their addresses travel with the launch.
inline constexpr std::size_t most_candidates = 256;

/// y[t] = sum over candidates of softmax(score) * candidate, the score of a candidate v being
/// dot(v / sqrt(mean(v^2) + eps), weight * factor); enqueues on `on`.
///
/// Shapes: candidates: addresses of device memory, each [tokens, cols]; weight [cols]; factor
///         [cols] or null for ones; scores, shares [tokens, candidates], before and after the
///         softmax; y [tokens, cols], none of the candidates. The bits of a token depend on its
///         values only.
/// Errors: contract_error for no or more than most_candidates candidates or on the host's stream;
///         cuda_error, device_lost.
/// Cost:   reads every candidate twice.
void mix_bank(stream_ref on,
              std::span<float const* const> candidates,
              float const* weight,
              float const* factor,
              float eps,
              std::size_t tokens,
              std::size_t cols,
              float* scores,
              float* shares,
              float* y);

}  // namespace terrace::kernel::cuda
