// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/attention_shape.hpp>
#include <terrace/core/stream_ref.hpp>
#include <terrace/kernel/cuda/decode_state.hpp>

namespace terrace::kernel::cuda {

/// Writes keys and values of `shape.tokens` new positions, from state->position on, into their
/// pages, rounded to binary16 where the cache asks. Enqueues on `on`.
///
/// The list of pages lies in device memory; only the pages written to need be there when the kernel
/// runs. shape.first_position is what the host knows of the position, at least: pages are checked
/// against it.
///
/// Shapes: k [tokens, kv_heads, d_k]; v [tokens, kv_heads, d_v], or null when values are part of
///         the keys (absorbed MLA).
/// Errors: contract_error when the list is too short or on the host's stream; cuda_error,
///         device_lost. A position behind the end of the list is not written.
void store_kv(stream_ref on,
              attention_shape const& shape,
              decode_state const* state,
              float const* k,
              float const* v,
              kv_pages const& cache);

}  // namespace terrace::kernel::cuda
