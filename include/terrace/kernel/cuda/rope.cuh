// SPDX-License-Identifier: Apache-2.0
#pragma once

// Defines what rope.hpp declares. Included by exactly one source file:
// examples/common/cuda_kernels/rope.cu.

#include <terrace/core/error.hpp>
#include <terrace/kernel/cuda/detail/grid.cuh>
#include <terrace/kernel/cuda/rope.hpp>
#include <terrace/shim/cuda.hpp>

#include <cstddef>
#include <string>

namespace terrace::kernel::cuda {

namespace detail {

static __global__ void make_angles_kernel(decode_state const* __restrict__ state,
                                          float const* __restrict__ frequencies,
                                          float magnitude,
                                          rope_angles into) {
  std::size_t const first = state->position;
  for (std::size_t i = loop_first(); i < into.tokens * into.pairs; i += loop_step()) {
    auto const position = static_cast<float>(first + i / into.pairs);
    auto const angle = static_cast<double>(__fmul_rn(position, frequencies[i % into.pairs]));
    double sine = 0;
    double cosine = 0;
    sincos(angle, &sine, &cosine);
    into.cosine[i] = __fmul_rn(static_cast<float>(cosine), magnitude);
    into.sine[i] = __fmul_rn(static_cast<float>(sine), magnitude);
  }
}

/// A thread per pair of a token and head.
static __global__ void rope_kernel(float* __restrict__ x, rope_shape shape, rope_angles angles) {
  bool const interleaved = shape.pairing == rope_pairing::interleaved;
  std::size_t const partner = interleaved ? 1 : shape.n_rot / 2;
  std::size_t const pairs = angles.pairs;
  for (std::size_t i = loop_first(); i < shape.tokens * shape.heads * pairs; i += loop_step()) {
    std::size_t const row = i / pairs;
    std::size_t const pair = i % pairs;
    std::size_t const of_angle = row / shape.heads * pairs + pair;
    float const cosine = angles.cosine[of_angle];
    float const sine = angles.sine[of_angle];
    float* const at =
        x + row * shape.head_stride + shape.first_dim + (interleaved ? 2 * pair : pair);
    float const a = at[0];
    float const b = at[partner];
    at[0] = fmaf(a, cosine, -__fmul_rn(b, sine));
    at[partner] = fmaf(a, sine, __fmul_rn(b, cosine));
  }
}

}  // namespace detail

void make_angles(stream_ref on,
                 decode_state const* state,
                 float const* frequencies,
                 float magnitude,
                 rope_angles const& into) {
  if (into.tokens * into.pairs == 0) { return; }
  shim::launch(
      detail::make_angles_kernel,
      {.grid = detail::loop_blocks(into.tokens * into.pairs), .block = detail::loop_threads},
      on,
      state,
      frequencies,
      magnitude,
      into);
}

void rope(stream_ref on, float* x, rope_shape const& shape, rope_angles const& angles) {
  if (angles.pairs * 2 != shape.n_rot || angles.tokens < shape.tokens ||
      shape.first_dim + shape.n_rot > shape.head_stride) {
    throw contract_error{
        "a rotation of dimensions " + std::to_string(shape.first_dim) + " to " +
        std::to_string(shape.first_dim + shape.n_rot) + " of " + std::to_string(shape.head_stride) +
        " for " + std::to_string(shape.tokens) + " tokens cannot use angles of " +
        std::to_string(angles.pairs) + " pairs for " + std::to_string(angles.tokens) + " tokens"};
  }
  std::size_t const work = shape.tokens * shape.heads * angles.pairs;
  if (work == 0) { return; }
  shim::launch(detail::rope_kernel,
               {.grid = detail::loop_blocks(work), .block = detail::loop_threads},
               on,
               x,
               shape,
               angles);
}

}  // namespace terrace::kernel::cuda
