// SPDX-License-Identifier: Apache-2.0
#pragma once

// Defines what kda.hpp declares. Included by exactly one source file:
// examples/common/cuda_kernels/kda.cu.

#include <terrace/core/error.hpp>
#include <terrace/kernel/cuda/detail/exponential.cuh>
#include <terrace/kernel/cuda/detail/grid.cuh>
#include <terrace/kernel/cuda/detail/reduce.cuh>
#include <terrace/kernel/cuda/kda.hpp>
#include <terrace/shim/cuda.hpp>

#include <cmath>
#include <cstddef>
#include <string>

namespace terrace::kernel::cuda {

namespace detail {

inline constexpr unsigned convolution_threads = 64;
inline constexpr unsigned panel_rows = 32;  ///< rows of a panel that a thread keeps

/// A thread per channel. Inputs are loaded some tokens ahead, for the sums are too short to hide a
/// load.
template <unsigned Taps>
static __global__ void __launch_bounds__(convolution_threads)
    short_convolution_kernel(float const* __restrict__ taps,
                             std::size_t tokens,
                             std::size_t width,
                             std::size_t history_offset,
                             std::byte* const* __restrict__ state,
                             float* __restrict__ x) {
  constexpr unsigned ahead = 8;
  std::size_t const channel = loop_first();
  if (channel >= width) { return; }
  float* const history = reinterpret_cast<float*>(*state) + history_offset + channel;
  float tap[Taps];
  float window[Taps];  // the last inputs, oldest first
  for (unsigned j = 0; j < Taps; ++j) { tap[j] = taps[channel * Taps + j]; }
  window[0] = 0;
  for (unsigned j = 0; j + 1 < Taps; ++j) { window[j + 1] = history[j * width]; }
  for (std::size_t first = 0; first < tokens; first += ahead) {
    float next[ahead];
#pragma unroll
    for (unsigned i = 0; i < ahead; ++i) {
      next[i] = first + i < tokens ? x[(first + i) * width + channel] : 0.0F;
    }
#pragma unroll
    for (unsigned i = 0; i < ahead; ++i) {
      if (first + i >= tokens) { break; }
#pragma unroll
      for (unsigned j = 0; j + 1 < Taps; ++j) { window[j] = window[j + 1]; }
      window[Taps - 1] = next[i];
      float sum = 0;
#pragma unroll
      for (unsigned j = 0; j < Taps; ++j) { sum = fmaf(tap[j], window[j], sum); }
      x[(first + i) * width + channel] = __fmul_rn(sum, sigmoid(sum));
    }
  }
  for (unsigned j = 0; j + 1 < Taps; ++j) { history[j * width] = window[j + 1]; }
}

/// How channels forget, as kernels take it.
struct kda_decays {
  kda_decay type;
  float bound;
  float const* rate;
  float const* dt_bias;
  bool rate_is_logarithm;
};

/// What a key channel keeps: e^g.
__device__ __forceinline__ float kept_share(kda_decays const& how, float rate, float s) {
  if (how.type == kda_decay::bounded) {
    return exponential(__fmul_rn(how.bound, sigmoid(__fmul_rn(rate, s))));
  }
  float const growth = s > 0 ? s + log1pf(exponential(-s)) : log1pf(exponential(s));
  return exponential(__fmul_rn(-rate, growth));
}

/// A warp per token and head: q and k to unit length, q over sqrt(dim), z to e^g, beta through the
/// sigmoid.
static __global__ void kda_rows_kernel(kda_inputs in,
                                       kda_decays decays,
                                       std::size_t rows,
                                       std::size_t heads,
                                       std::size_t dim,
                                       float query_scale) {
  unsigned const lane = threadIdx.x % warp_threads;
  std::size_t const row = loop_first() / warp_threads;
  if (row >= rows) { return; }  // whole warps leave
  std::size_t const head = row % heads;
  float* const q = in.q + row * dim;
  float* const k = in.k + row * dim;
  float* const z = in.z + row * dim;
  float const* const dt_bias = decays.dt_bias + head * dim;
  float of_q = 0;
  float of_k = 0;
  for (std::size_t i = lane; i < dim; i += warp_threads) {
    of_q = fmaf(q[i], q[i], of_q);
    of_k = fmaf(k[i], k[i], of_k);
  }
  float const q_factor = query_scale / sqrtf(warp_sum(of_q) + 1e-6F);
  float const k_factor = 1.0F / sqrtf(warp_sum(of_k) + 1e-6F);
  float const given = decays.rate[head];
  float const rate = decays.rate_is_logarithm ? exponential(given) : -given;
  for (std::size_t i = lane; i < dim; i += warp_threads) {
    q[i] = __fmul_rn(q[i], q_factor);
    k[i] = __fmul_rn(k[i], k_factor);
    z[i] = kept_share(decays, rate, z[i] + dt_bias[i]);
  }
  if (lane == 0) { in.beta[row] = sigmoid(in.beta[row]); }
}

/// Read four floats at a time.
template <unsigned Count>
struct alignas(16) kda_row {
  float at[Count];
};

/// The delta rule on 32 columns of one head's state, token after token. Blocks: x panels of
/// columns, y heads. Warp w keeps rows 32 w to 32 w + 31 in registers, lane l column l; sums go
/// over rows in ascending order in two chains, then over warps in ascending order.
template <unsigned Threads>
static __global__ void __launch_bounds__(Threads) kda_panel_kernel(kda_inputs in,
                                                                   std::size_t tokens,
                                                                   unsigned heads,
                                                                   unsigned dim,
                                                                   std::byte* const* state,
                                                                   float* __restrict__ out) {
  constexpr unsigned most_warps = Threads / warp_threads;
  // Two of each, so that a warp that is ahead does not overwrite what others still read.
  __shared__ kda_row<most_warps * panel_rows> rows[2][3];
  __shared__ float predicted[2][most_warps][warp_threads];
  __shared__ float answered[2][most_warps][warp_threads];
  unsigned const lane = threadIdx.x % warp_threads;
  unsigned const warp = threadIdx.x / warp_threads;
  unsigned const warps = blockDim.x / warp_threads;
  unsigned const head = blockIdx.y;
  unsigned const column = blockIdx.x * warp_threads + lane;
  unsigned const first_row = warp * panel_rows;
  bool const exists = column < dim;
  std::size_t const stride = static_cast<std::size_t>(heads) * dim;
  float* const s = reinterpret_cast<float*>(*state) +
                   (static_cast<std::size_t>(head) * dim + first_row) * dim + column;

  float kept[panel_rows];
#pragma unroll
  for (unsigned i = 0; i < panel_rows; ++i) {
    kept[i] = exists && first_row + i < dim ? s[static_cast<std::size_t>(i) * dim] : 0.0F;
  }
  // Thread i carries element i of the rows of the next token; elements past dim are zeros.
  auto const element = [&](float const* from, std::size_t t) {
    return threadIdx.x < dim && t < tokens
               ? from[t * stride + static_cast<std::size_t>(head) * dim + threadIdx.x]
               : 0.0F;
  };
  auto const value = [&](std::size_t t) {
    return exists && t < tokens ? in.v[t * stride + static_cast<std::size_t>(head) * dim + column]
                                : 0.0F;
  };
  auto const learned = [&](std::size_t t) { return t < tokens ? in.beta[t * heads + head] : 0.0F; };
  float next_q = element(in.q, 0);
  float next_k = element(in.k, 0);
  float next_keep = element(in.z, 0);
  float next_v = value(0);
  float next_beta = learned(0);
  for (std::size_t t = 0; t < tokens; ++t) {
    unsigned const turn = t % 2;
    rows[turn][0].at[threadIdx.x] = next_q;
    rows[turn][1].at[threadIdx.x] = next_k;
    rows[turn][2].at[threadIdx.x] = next_keep;
    float const v = next_v;
    float const beta = next_beta;
    next_q = element(in.q, t + 1);
    next_k = element(in.k, t + 1);
    next_keep = element(in.z, t + 1);
    next_v = value(t + 1);
    next_beta = learned(t + 1);
    __syncthreads();
    float const* const q = rows[turn][0].at + first_row;
    float const* const k = rows[turn][1].at + first_row;
    float const* const keep = rows[turn][2].at + first_row;
    float sum[2] = {0, 0};
#pragma unroll
    for (unsigned i = 0; i < panel_rows; ++i) {
      kept[i] = __fmul_rn(kept[i], keep[i]);
      sum[i % 2] = fmaf(kept[i], k[i], sum[i % 2]);
    }
    predicted[turn][warp][lane] = sum[0] + sum[1];
    __syncthreads();
    float all = predicted[turn][0][lane];
    for (unsigned w = 1; w < warps; ++w) { all = all + predicted[turn][w][lane]; }
    float const u = __fmul_rn(beta, v - all);
    sum[0] = sum[1] = 0;
#pragma unroll
    for (unsigned i = 0; i < panel_rows; ++i) {
      kept[i] = fmaf(k[i], u, kept[i]);
      sum[i % 2] = fmaf(kept[i], q[i], sum[i % 2]);
    }
    answered[turn][warp][lane] = sum[0] + sum[1];
    __syncthreads();
    if (warp == 0 && exists) {
      float answer = answered[turn][0][lane];
      for (unsigned w = 1; w < warps; ++w) { answer = answer + answered[turn][w][lane]; }
      out[t * stride + static_cast<std::size_t>(head) * dim + column] = answer;
    }
  }
#pragma unroll
  for (unsigned i = 0; i < panel_rows; ++i) {
    if (exists && first_row + i < dim) { s[static_cast<std::size_t>(i) * dim] = kept[i]; }
  }
}

/// Throws contract_error for a shape these kernels do not compute.
inline void check_kda(kda_shape const& shape) {
  if (shape.heads == 0 || shape.dim == 0 || shape.dim % 16 != 0 || shape.dim > most_kda_dim ||
      shape.taps < 2 || shape.taps > 8) {
    throw contract_error{"delta attention of " + std::to_string(shape.heads) + " heads of " +
                         std::to_string(shape.dim) + " with " + std::to_string(shape.taps) +
                         " taps is not computed on CUDA devices; heads are multiples of 16 up to " +
                         std::to_string(most_kda_dim) + " and taps 2 to 8"};
  }
}

template <unsigned Taps>
void launch_short_convolution(stream_ref on,
                              kda_shape const& shape,
                              std::size_t which,
                              float const* taps,
                              std::size_t tokens,
                              std::byte* const* state,
                              float* x) {
  auto const blocks =
      static_cast<unsigned>((shape.width() + convolution_threads - 1) / convolution_threads);
  shim::launch(short_convolution_kernel<Taps>,
               {.grid = blocks, .block = convolution_threads},
               on,
               taps,
               tokens,
               shape.width(),
               shape.history_offset(which),
               state,
               x);
}

}  // namespace detail

void short_convolution(stream_ref on,
                       kda_shape const& shape,
                       std::size_t which,
                       float const* taps,
                       std::size_t tokens,
                       std::byte* const* state,
                       float* x) {
  detail::check_kda(shape);
  if (tokens == 0) { return; }
  constexpr void (*with[])(stream_ref,
                           kda_shape const&,
                           std::size_t,
                           float const*,
                           std::size_t,
                           std::byte* const*,
                           float*) = {detail::launch_short_convolution<2>,
                                      detail::launch_short_convolution<3>,
                                      detail::launch_short_convolution<4>,
                                      detail::launch_short_convolution<5>,
                                      detail::launch_short_convolution<6>,
                                      detail::launch_short_convolution<7>,
                                      detail::launch_short_convolution<8>};
  with[shape.taps - 2](on, shape, which, taps, tokens, state, x);
}

void kda(stream_ref on,
         kda_shape const& shape,
         kda_inputs const& in,
         std::size_t tokens,
         std::byte* const* state,
         float* out) {
  detail::check_kda(shape);
  if (tokens == 0) { return; }
  std::size_t const rows = tokens * shape.heads;
  shim::launch(
      detail::kda_rows_kernel,
      {.grid = detail::loop_blocks(rows * detail::warp_threads), .block = detail::loop_threads},
      on,
      in,
      detail::kda_decays{.type = shape.decay,
                         .bound = shape.bound,
                         .rate = in.rate,
                         .dt_bias = in.dt_bias,
                         .rate_is_logarithm = in.rate_is_logarithm},
      rows,
      shape.heads,
      shape.dim,
      1.0F / std::sqrt(static_cast<float>(shape.dim)));
  auto const panels =
      static_cast<unsigned>((shape.dim + detail::warp_threads - 1) / detail::warp_threads);
  unsigned const threads = panels * detail::panel_rows;  // a thread per element of a row, too
  auto const launch = [&](auto kernel) {
    shim::launch(kernel,
                 {.grid = dim3{panels, static_cast<unsigned>(shape.heads)}, .block = threads},
                 on,
                 in,
                 tokens,
                 static_cast<unsigned>(shape.heads),
                 static_cast<unsigned>(shape.dim),
                 state,
                 out);
  };
  if (threads <= 256) {
    launch(detail::kda_panel_kernel<256>);
  } else {
    launch(detail::kda_panel_kernel<1024>);
  }
}

}  // namespace terrace::kernel::cuda
