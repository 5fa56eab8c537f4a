// SPDX-License-Identifier: Apache-2.0
#pragma once

// Defines what residual_bank.hpp declares. Included by exactly one source file:
// examples/common/cuda_kernels/residual_bank.cu.

#include <terrace/core/error.hpp>
#include <terrace/kernel/cuda/detail/exponential.cuh>
#include <terrace/kernel/cuda/detail/reduce.cuh>
#include <terrace/kernel/cuda/residual_bank.hpp>
#include <terrace/shim/cuda.hpp>

#include <algorithm>
#include <cstddef>
#include <string>

namespace terrace::kernel::cuda {

namespace detail {

inline constexpr unsigned bank_threads = 512;

/// What a launch carries: the addresses themselves.
struct bank_candidates {
  float const* at[most_candidates];
  unsigned count;
};

/// A block per token and candidate.
static __global__ void bank_score_kernel(bank_candidates const candidates,
                                         float const* __restrict__ weight,
                                         float const* __restrict__ factor,
                                         float eps,
                                         std::size_t cols,
                                         float* __restrict__ scores) {
  __shared__ float part[32];
  std::size_t const token = blockIdx.y;
  float const* const v = candidates.at[blockIdx.x] + token * cols;
  float squares = 0;
  float dot = 0;
  for (std::size_t i = threadIdx.x; i < cols; i += blockDim.x) {
    float const w = factor == nullptr ? weight[i] : __fmul_rn(weight[i], factor[i]);
    squares = fmaf(v[i], v[i], squares);
    dot = fmaf(v[i], w, dot);
  }
  squares = block_sum(squares, part);
  dot = block_sum(dot, part);
  if (threadIdx.x == 0) {
    scores[token * candidates.count + blockIdx.x] =
        dot / sqrtf(squares / static_cast<float>(cols) + eps);
  }
}

/// A thread per column; blocks: x columns, y tokens. Every thread makes the softmax for itself, so
/// that nobody waits.
static __global__ void bank_mix_kernel(bank_candidates const candidates,
                                       float const* __restrict__ scores,
                                       std::size_t cols,
                                       float* __restrict__ shares,
                                       float* __restrict__ y) {
  std::size_t const column = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (column >= cols) { return; }
  std::size_t const token = blockIdx.y;
  float const* const score = scores + token * candidates.count;
  float largest = score[0];
  for (unsigned n = 1; n < candidates.count; ++n) { largest = fmaxf(largest, score[n]); }
  float total = 0;
  for (unsigned n = 0; n < candidates.count; ++n) { total += exponential(score[n] - largest); }
  float sum = 0;
  for (unsigned n = 0; n < candidates.count; ++n) {
    float const share = exponential(score[n] - largest) / total;
    if (column == 0) { shares[token * candidates.count + n] = share; }
    sum = fmaf(share, candidates.at[n][token * cols + column], sum);
  }
  y[token * cols + column] = sum;
}

}  // namespace detail

void mix_bank(stream_ref on,
              std::span<float const* const> candidates,
              float const* weight,
              float const* factor,
              float eps,
              std::size_t tokens,
              std::size_t cols,
              float* scores,
              float* shares,
              float* y) {
  if (candidates.empty() || candidates.size() > most_candidates) {
    throw contract_error{"a residual bank of " + std::to_string(candidates.size()) +
                         " vectors is not mixed on CUDA devices; it takes 1 to " +
                         std::to_string(most_candidates)};
  }
  if (tokens * cols == 0) { return; }
  detail::bank_candidates all{.at = {}, .count = static_cast<unsigned>(candidates.size())};
  std::copy(candidates.begin(), candidates.end(), all.at);
  shim::launch(
      detail::bank_score_kernel,
      {.grid = dim3{all.count, static_cast<unsigned>(tokens)}, .block = detail::bank_threads},
      on,
      all,
      weight,
      factor,
      eps,
      cols,
      scores);
  constexpr unsigned mix_threads = 128;
  auto const across = static_cast<unsigned>((cols + mix_threads - 1) / mix_threads);
  shim::launch(detail::bank_mix_kernel,
               {.grid = dim3{across, static_cast<unsigned>(tokens)}, .block = mix_threads},
               on,
               all,
               static_cast<float const*>(scores),
               cols,
               shares,
               y);
}

}  // namespace terrace::kernel::cuda
