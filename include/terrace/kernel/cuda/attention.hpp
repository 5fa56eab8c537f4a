// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/attention_shape.hpp>
#include <terrace/core/numerics.hpp>
#include <terrace/core/stream_ref.hpp>
#include <terrace/kernel/cuda/decode_state.hpp>

#include <cstddef>

namespace terrace::kernel::cuda {

/// Positions whose softmax is computed together: split s holds positions [256 s, 256 s + 256)
/// whatever a call begins with, and splits are merged in ascending order.
inline constexpr std::size_t attention_split = 256;
/// Longest value row the kernels hold in registers.
inline constexpr std::size_t most_value_dims = 512;

struct attention_call {
  attention_shape shape;  ///< first_position: what the host knows of state->position, at least
  decode_state const* state = nullptr;  ///< where token 0 stands
  float const* q = nullptr;             ///< [tokens, heads, d_k]
  kv_pages cache;        ///< the list lies in device memory; it may be longer than what is filled
  float* out = nullptr;  ///< [tokens, heads, d_v]
  void* scratch = nullptr;  ///< attention_scratch_bytes; not read before it is written
};

/// Bytes of scratch for a call of this shape with a list of pages for `positions` positions; grows
/// with both.
[[nodiscard]] std::size_t attention_scratch_bytes(attention_shape const& shape,
                                                  std::size_t positions) noexcept;

/// Causal attention: out = softmax(scale * q . k) v, token t over positions 0 to state->position +
/// t, which must be in the cache already (store_kv on the same stream). All memory is on the
/// device; enqueues on `on`.
///
/// Ordering: under `exact` a token and head have the same bits whatever else is in the call and
///           however long the list of pages is.
/// Errors:   contract_error when heads is no multiple of kv_heads, d_v exceeds most_value_dims, the
///           list is too short or the stream is the host's; cuda_error, device_lost. Positions
///           behind the end of the list are left out.
/// Cost:     few tokens: every split of the list is a block per key head, those behind the position
///           leave at once. Many tokens: a block per key head and 16 query rows reads all splits.
void attention(stream_ref on, numerics mode, attention_call const& call);

}  // namespace terrace::kernel::cuda
