// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/kda_shape.hpp>
#include <terrace/core/stream_ref.hpp>

#include <cstddef>

/// Kimi delta attention. All pointers are memory that the stream's device reads and writes; every
/// call enqueues on `on` and returns. `state` points to the address of the layer's one page, which
/// is laid out as kda_shape says and read when the kernel runs. A token has the same bits in any
/// company, so the state does not depend on how a prompt was cut.
/// Errors of each: contract_error for a shape that is not computed or on the host's stream;
/// cuda_error, device_lost.
namespace terrace::kernel::cuda {

/// Widest head: a block of threads keeps 32 columns of a head's state in registers.
inline constexpr std::size_t most_kda_dim = 1024;

/// x[t] = silu(sum over j of taps[c, j] * x[t - (n - 1) + j]) in place, n = shape.taps, of
/// convolution `which` (0 q, 1 k, 2 v).
///
/// Shapes: x [tokens, width]; taps [width, n], the last for the current token. The history in the
///         state moves on.
void short_convolution(stream_ref on,
                       kda_shape const& shape,
                       std::size_t which,
                       float const* taps,
                       std::size_t tokens,
                       std::byte* const* state,
                       float* x);

/// What one layer reads of each token after the short convolutions. q, k, z and beta are
/// overwritten.
struct kda_inputs {
  float* q;                ///< [tokens, heads, dim]
  float* k;                ///< [tokens, heads, dim]
  float const* v;          ///< [tokens, heads, dim]
  float* z;                ///< [tokens, heads, dim], before dt_bias
  float* beta;             ///< [tokens, heads], before the sigmoid
  float const* rate;       ///< [heads]
  float const* dt_bias;    ///< [heads, dim]
  bool rate_is_logarithm;  ///< true: A_log; false: -e^A_log
};

/// The delta rule with a decay per channel, as `reference::kda`, in float32: out
/// [tokens, heads, dim].
/// Cost: reads and writes the matrices of the state once for any number of tokens.
void kda(stream_ref on,
         kda_shape const& shape,
         kda_inputs const& in,
         std::size_t tokens,
         std::byte* const* state,
         float* out);

}  // namespace terrace::kernel::cuda
