// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/kernel/cuda/detail/device.cuh>
#include <terrace/kernel/cuda/detail/expert_faults.cuh>
#include <terrace/kernel/cuda/detail/reduce.cuh>
#include <terrace/kernel/cuda/expert_ffn.hpp>

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

namespace terrace::kernel::cuda::detail {

/// Up to `tile` consecutive pairs, in the order by expert, of one expert.
struct pair_tile {
  std::uint32_t expert;
  std::uint32_t first;
  std::uint32_t count;
};

/// Pairs by expert. Pairs of absent experts are left out.
struct sorted_pairs {
  std::uint32_t* order;  ///< [pairs]
  pair_tile* tiles;      ///< [most_tiles]
  std::uint32_t* tile_count;
  std::uint32_t pairs;

  [[nodiscard]] static std::size_t most_tiles(std::size_t pairs,
                                              std::size_t experts,
                                              std::size_t tile) {
    return pairs / tile + (pairs < experts ? pairs : experts);
  }
};

inline constexpr unsigned sort_threads = 1024;

/// A lane's sum of the values of the lanes before it, and all lanes' sum.
__device__ __forceinline__ std::uint32_t sum_before(std::uint32_t value, std::uint32_t& all) {
  unsigned const lane = threadIdx.x % warp_threads;
  std::uint32_t sum = value;
  for (unsigned apart = 1; apart < warp_threads; apart *= 2) {
    std::uint32_t const other = __shfl_up_sync(all_lanes, sum, apart);
    sum += lane >= apart ? other : 0U;
  }
  all = __shfl_sync(all_lanes, sum, warp_threads - 1);
  return sum - value;
}

/// Sorts by counting, in one block. Within an expert the order is whichever comes: a pair's
/// products do not depend on its place. Dynamic shared memory: a word for each expert.
static __global__ void __launch_bounds__(sort_threads) sort_pairs_kernel(expert_entry const* table,
                                                                         expert_id const* ids,
                                                                         std::uint32_t experts,
                                                                         std::uint32_t layer,
                                                                         std::uint32_t tile,
                                                                         sorted_pairs to,
                                                                         device_fault* fault) {
  auto* const counts = dynamic_shared<std::uint32_t>();
  for (std::uint32_t e = threadIdx.x; e < experts; e += sort_threads) { counts[e] = 0; }
  __syncthreads();
  for (std::uint32_t p = threadIdx.x; p < to.pairs; p += sort_threads) {
    auto const id = static_cast<std::uint32_t>(ids[p]);
    if (id >= experts) {
      note_fault(fault, device_fault::bad_expert, layer, id);
    } else if (table[id].block != nullptr) {
      atomicAdd(&counts[id], 1U);
    }
  }
  __syncthreads();
  if (threadIdx.x < warp_threads) {  // from now on a count is where its expert's pairs begin
    std::uint32_t pairs_before = 0;
    std::uint32_t tiles_before = 0;
    for (std::uint32_t from = 0; from < experts; from += warp_threads) {
      std::uint32_t const e = from + threadIdx.x;
      std::uint32_t const count = e < experts ? counts[e] : 0U;
      std::uint32_t const tiles = (count + tile - 1) / tile;
      std::uint32_t pairs_here = 0;
      std::uint32_t tiles_here = 0;
      std::uint32_t const first = pairs_before + sum_before(count, pairs_here);
      std::uint32_t const first_tile = tiles_before + sum_before(tiles, tiles_here);
      for (std::uint32_t i = 0; i < tiles; ++i) {
        std::uint32_t const left = count - i * tile;
        to.tiles[first_tile + i] = {e, first + i * tile, left < tile ? left : tile};
      }
      if (e < experts) { counts[e] = first; }
      pairs_before += pairs_here;
      tiles_before += tiles_here;
    }
    if (threadIdx.x == 0) { *to.tile_count = tiles_before; }
  }
  __syncthreads();
  for (std::uint32_t p = threadIdx.x; p < to.pairs; p += sort_threads) {
    auto const id = static_cast<std::uint32_t>(ids[p]);
    if (id < experts && table[id].block != nullptr) { to.order[atomicAdd(&counts[id], 1U)] = p; }
  }
}

}  // namespace terrace::kernel::cuda::detail
