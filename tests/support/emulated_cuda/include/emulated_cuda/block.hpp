// SPDX-License-Identifier: Apache-2.0
#pragma once

// What a thread of a kernel sees of its block: indices, barriers and the exchange of values within
// a warp.

#include <emulated_cuda/keywords.hpp>
#include <emulated_cuda/vector_types.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <source_location>
#include <stdexcept>

// Set whenever a thread of the block continues.
inline thread_local constinit uint3 threadIdx{0, 0, 0};
inline thread_local constinit uint3 blockIdx{0, 0, 0};
inline thread_local constinit dim3 blockDim{1, 1, 1};
inline thread_local constinit dim3 gridDim{1, 1, 1};
inline constexpr int warpSize = 32;

namespace emulated_cuda {

/// A kernel did what the device forbids or what the emulation does not cover; the sentence says
/// which thread and where.
struct kernel_failure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct launch_dimensions {
  dim3 grid;
  dim3 block;
  std::size_t shared_bytes = 0;
};

/// Runs all blocks of a launch on the calling thread, in order of their index. Errors:
/// kernel_failure.
void run_blocks(launch_dimensions const& shape, std::function<void()> const& thread_body);

/// Memory that the launch asked for with shared_bytes, poisoned at the start of each block.
[[nodiscard]] std::byte* dynamic_shared_memory();
[[nodiscard]] std::size_t dynamic_shared_bytes();

/// Lets the other threads of the block, and the threads of the host, go on.
void pause();

inline constexpr std::size_t slot_bytes = 64;
struct alignas(16) exchange_slot {
  std::byte bytes[slot_bytes];
};
/// What the 32 lanes handed in; `present` has a bit for each lane that the block has.
struct exchange_view {
  exchange_slot const* slots;
  std::uint32_t present;
  unsigned lane;
};
/// Hands in `bytes` bytes and waits for all lanes of the warp to do the same in the same operation.
/// The view holds until the lane's next exchange.
exchange_view exchange(char const* operation,
                       std::uint32_t mask,
                       void const* value,
                       std::size_t bytes,
                       std::source_location const& where);

/// Throws kernel_failure naming the thread and `where`.
[[noreturn]] void fail(char const* what, std::source_location const& where);

template <class T>
T read_slot(exchange_view const& view, unsigned lane, std::source_location const& where) {
  if ((view.present >> lane & 1U) == 0) {
    fail("reads a lane that the block does not have", where);
  }
  T value;
  std::memcpy(&value, view.slots[lane].bytes, sizeof value);
  return value;
}

template <class T>
T shuffle(char const* operation,
          std::uint32_t mask,
          T value,
          unsigned source,
          std::source_location const& where) {
  static_assert(sizeof(T) <= 8);
  auto const view = exchange(operation, mask, &value, sizeof value, where);
  return source == view.lane ? value : read_slot<T>(view, source, where);
}
[[nodiscard]] unsigned lane_id();

/// Asynchronous copies of the calling thread. The bytes arrive at the wait and not before; until
/// then the target reads as 0xFF.
void start_copy(void* to, void const* from, std::size_t bytes, std::source_location const& where);
void end_copy_group();
void wait_for_copies(std::size_t pending_groups);
void barrier(std::source_location const& where);

}  // namespace emulated_cuda

using emulated_where = std::source_location;

inline void __syncthreads(emulated_where where = emulated_where::current()) {
  emulated_cuda::barrier(where);
}
inline void __syncwarp(unsigned mask = 0xffffffffU,
                       emulated_where where = emulated_where::current()) {
  emulated_cuda::exchange("__syncwarp", mask, nullptr, 0, where);
}
inline int __syncthreads_or(int predicate, emulated_where where = emulated_where::current()) {
  static thread_local int any;
  if (threadIdx.x == 0 && threadIdx.y == 0 && threadIdx.z == 0) { any = 0; }
  emulated_cuda::barrier(where);
  any |= predicate != 0 ? 1 : 0;
  emulated_cuda::barrier(where);
  int const result = any;
  emulated_cuda::barrier(where);
  return result;
}

template <class T>
T __shfl_sync(unsigned mask,
              T value,
              int source,
              int width = warpSize,
              emulated_where where = emulated_where::current()) {
  unsigned const lane = emulated_cuda::lane_id();
  auto const segment = static_cast<unsigned>(width);
  unsigned const from = (lane & ~(segment - 1)) + (static_cast<unsigned>(source) & (segment - 1));
  return emulated_cuda::shuffle("__shfl_sync", mask, value, from, where);
}
template <class T>
T __shfl_xor_sync(unsigned mask,
                  T value,
                  int lanes,
                  int width = warpSize,
                  emulated_where where = emulated_where::current()) {
  unsigned const lane = emulated_cuda::lane_id();
  auto const segment = static_cast<unsigned>(width);
  unsigned const from = lane ^ static_cast<unsigned>(lanes);
  bool const inside = (from & ~(segment - 1)) <= (lane & ~(segment - 1));
  return emulated_cuda::shuffle("__shfl_xor_sync", mask, value, inside ? from : lane, where);
}
template <class T>
T __shfl_down_sync(unsigned mask,
                   T value,
                   unsigned delta,
                   int width = warpSize,
                   emulated_where where = emulated_where::current()) {
  unsigned const lane = emulated_cuda::lane_id();
  auto const segment = static_cast<unsigned>(width);
  bool const inside = (lane & (segment - 1)) + delta < segment;
  return emulated_cuda::shuffle(
      "__shfl_down_sync", mask, value, inside ? lane + delta : lane, where);
}
template <class T>
T __shfl_up_sync(unsigned mask,
                 T value,
                 unsigned delta,
                 int width = warpSize,
                 emulated_where where = emulated_where::current()) {
  unsigned const lane = emulated_cuda::lane_id();
  auto const segment = static_cast<unsigned>(width);
  bool const inside = (lane & (segment - 1)) >= delta;
  return emulated_cuda::shuffle("__shfl_up_sync", mask, value, inside ? lane - delta : lane, where);
}
inline unsigned __ballot_sync(unsigned mask,
                              int predicate,
                              emulated_where where = emulated_where::current()) {
  int const mine = predicate != 0 ? 1 : 0;
  auto const view = emulated_cuda::exchange("__ballot_sync", mask, &mine, sizeof mine, where);
  unsigned votes = 0;
  for (unsigned lane = 0; lane < 32; ++lane) {
    if ((view.present >> lane & 1U) != 0 && emulated_cuda::read_slot<int>(view, lane, where) != 0) {
      votes |= 1U << lane;
    }
  }
  return votes;
}
inline int __any_sync(unsigned mask,
                      int predicate,
                      emulated_where where = emulated_where::current()) {
  return __ballot_sync(mask, predicate, where) != 0 ? 1 : 0;
}
inline int __all_sync(unsigned mask,
                      int predicate,
                      emulated_where where = emulated_where::current()) {
  return __ballot_sync(mask, predicate != 0 ? 0 : 1, where) == 0 ? 1 : 0;
}
template <class T>
T emulated_reduce(
    char const* operation, unsigned mask, T value, auto combine, emulated_where where) {
  auto const view = emulated_cuda::exchange(operation, mask, &value, sizeof value, where);
  bool first = true;
  T sum{};
  for (unsigned lane = 0; lane < 32; ++lane) {
    if ((view.present >> lane & 1U) == 0) { continue; }
    T const one = emulated_cuda::read_slot<T>(view, lane, where);
    sum = first ? one : combine(sum, one);
    first = false;
  }
  return sum;
}
inline unsigned __reduce_add_sync(unsigned mask,
                                  unsigned value,
                                  emulated_where where = emulated_where::current()) {
  return emulated_reduce("__reduce_add_sync", mask, value, std::plus<>{}, where);
}
inline int __reduce_add_sync(unsigned mask,
                             int value,
                             emulated_where where = emulated_where::current()) {
  return emulated_reduce("__reduce_add_sync", mask, value, std::plus<>{}, where);
}
