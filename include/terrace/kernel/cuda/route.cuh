// SPDX-License-Identifier: Apache-2.0
#pragma once

// Defines what route.hpp declares. Included by exactly one source file:
// examples/common/cuda_kernels/route.cu.

#include <terrace/core/error.hpp>
#include <terrace/kernel/cuda/detail/exponential.cuh>
#include <terrace/kernel/cuda/detail/reduce.cuh>
#include <terrace/kernel/cuda/route.hpp>
#include <terrace/shim/cuda.hpp>

#include <cstddef>
#include <cstdint>
#include <string>

namespace terrace::kernel::cuda {

namespace detail {

inline constexpr unsigned route_warps = 4;  ///< tokens of a block
inline constexpr std::uint32_t taken_key = 0;
inline constexpr std::uint32_t nan_key = 1;

/// A number that orders as the score does: larger scores have larger keys, NaN the least.
__device__ __forceinline__ std::uint32_t score_key(float score) {
  if (score != score) { return nan_key; }
  std::uint32_t const bits = __float_as_uint(score + 0.0F);  // -0 becomes 0
  return (bits & 0x80000000U) != 0 ? ~bits : bits | 0x80000000U;
}

/// What the lane's experts, lane + 32 i, hold at most, and where: the first of equals.
template <unsigned PerLane>
__device__ __forceinline__ void best_of_lane(std::uint32_t const (&key)[PerLane],
                                             std::uint32_t& best,
                                             unsigned& index) {
  best = key[0];
  index = 0;
#pragma unroll
  for (unsigned i = 1; i < PerLane; ++i) {
    if (key[i] > best) {
      best = key[i];
      index = i;
    }
  }
}

/// A warp per token. Each of the top_k rounds takes the largest key left, the lowest expert among
/// equals.
template <unsigned PerLane>
static __global__ void route_kernel(sigmoid_router router,
                                    float const* __restrict__ logits,
                                    float const* __restrict__ bias,
                                    std::size_t tokens,
                                    expert_id* __restrict__ ids,
                                    float* __restrict__ weights) {
  unsigned const lane = threadIdx.x % warp_threads;
  std::size_t const token =
      static_cast<std::size_t>(blockIdx.x) * route_warps + threadIdx.x / warp_threads;
  if (token >= tokens) { return; }  // whole warps leave
  std::uint32_t key[PerLane];
#pragma unroll
  for (unsigned i = 0; i < PerLane; ++i) {
    std::size_t const expert = lane + warp_threads * i;
    key[i] = taken_key;
    if (expert < router.experts) {
      float const score = sigmoid(logits[token * router.experts + expert]);
      key[i] = score_key(bias == nullptr ? score : score + bias[expert]);
    }
  }
  expert_id* const chosen = ids + token * router.top_k;
  float* const weight = weights + token * router.top_k;
  float total = 0;
  for (std::size_t k = 0; k < router.top_k; ++k) {
    std::uint32_t mine = 0;
    unsigned index = 0;
    best_of_lane(key, mine, index);
    std::uint32_t best = mine;
    unsigned expert = lane + warp_threads * index;
    for (int apart = 16; apart > 0; apart /= 2) {
      std::uint32_t const other = __shfl_xor_sync(all_lanes, best, apart);
      unsigned const other_expert = __shfl_xor_sync(all_lanes, expert, apart);
      if (other > best || (other == best && other_expert < expert)) {
        best = other;
        expert = other_expert;
      }
    }
#pragma unroll
    for (unsigned i = 0; i < PerLane; ++i) {
      if (expert == lane + warp_threads * i) { key[i] = taken_key; }
    }
    float const score = sigmoid(logits[token * router.experts + expert]);
    total = total + score;
    if (lane == 0) {
      chosen[k] = static_cast<expert_id>(expert);
      weight[k] = score;
    }
  }
  __syncwarp();
  for (std::size_t k = lane; k < router.top_k; k += warp_threads) {
    float const share = router.normalise ? weight[k] / (total + 1e-20F) : weight[k];
    weight[k] = __fmul_rn(share, router.scale);
  }
}

}  // namespace detail

void route(stream_ref on,
           sigmoid_router const& router,
           float const* logits,
           float const* bias,
           std::size_t tokens,
           expert_id* ids,
           float* weights) {
  if (router.top_k == 0 || router.top_k > router.experts) {
    throw contract_error{"a router cannot choose " + std::to_string(router.top_k) + " of " +
                         std::to_string(router.experts) + " experts"};
  }
  if (router.experts > most_routed_experts) {
    throw contract_error{"a router on a CUDA device chooses from at most " +
                         std::to_string(most_routed_experts) + " experts; this one has " +
                         std::to_string(router.experts)};
  }
  if (tokens == 0) { return; }
  auto const with = [&](auto kernel) {
    shim::launch(
        kernel,
        {.grid = static_cast<unsigned>((tokens + detail::route_warps - 1) / detail::route_warps),
         .block = detail::route_warps * detail::warp_threads},
        on,
        router,
        logits,
        bias,
        tokens,
        ids,
        weights);
  };
  if (router.experts <= 256) {
    with(detail::route_kernel<8>);
  } else if (router.experts <= 512) {
    with(detail::route_kernel<16>);
  } else {
    with(detail::route_kernel<32>);
  }
}

}  // namespace terrace::kernel::cuda
