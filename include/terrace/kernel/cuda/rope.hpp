// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/rope_shape.hpp>
#include <terrace/core/stream_ref.hpp>
#include <terrace/kernel/cuda/decode_state.hpp>

#include <cstddef>

namespace terrace::kernel::cuda {

/// Cosines and sines for the tokens of one step, shared by its layers and heads: [tokens, pairs]
/// each, in device memory that someone else owns.
struct rope_angles {
  std::size_t tokens = 0;
  std::size_t pairs = 0;
  float* cosine = nullptr;
  float* sine = nullptr;
};

/// Fills `into` for positions [state->position, + into.tokens): angle = position * frequencies[i],
/// rounded to float32 as the reference models do; its cosine and sine are computed in double and
/// multiplied by `magnitude`.
///
/// Shapes: frequencies [into.pairs]; frequencies and state in device memory.
/// Errors: contract_error on the host's stream; cuda_error, device_lost.
void make_angles(stream_ref on,
                 decode_state const* state,
                 float const* frequencies,
                 float magnitude,
                 rope_angles const& into);

/// Rotates pairs of dimensions of x in place by the angles, whose row t belongs to token t; the
/// CPU's bits for the same angles.
///
/// Errors: contract_error when shape and angles disagree or on the host's stream; cuda_error,
///         device_lost.
void rope(stream_ref on, float* x, rope_shape const& shape, rope_angles const& angles);

}  // namespace terrace::kernel::cuda
