// SPDX-License-Identifier: Apache-2.0
#pragma once

// The one machine of the process: devices, allocations, faults. Private to the emulated runtime.

#include <emulated_cuda/control.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace emulated_cuda {

inline constexpr int most_devices = 8;
inline constexpr std::size_t call_kinds = 6;
inline constexpr std::size_t pool_unit_bytes = std::size_t{2} << 20U;  ///< what pools reserve
inline constexpr std::size_t page_bytes = std::size_t{64}
                                          << 10U;  ///< unit of residency of managed memory

struct allocation {
  std::size_t bytes = 0;
  cudaMemoryType type = cudaMemoryTypeUnregistered;
  int device = 0;
  bool owned = true;           ///< false for memory that was only registered
  std::vector<bool> resident;  ///< managed memory: pages on the device
  cudaMemPool_t pool = nullptr;
  bool leaving = false;  ///< of a pool: freed, and no longer counted there
};

struct device_state {
  std::atomic<int> failure{cudaSuccess};
  std::size_t used = 0;
  std::size_t peak = 0;
};

struct fault {
  unsigned countdown = 0;
  cudaError_t code = cudaSuccess;
};

struct machine {
  std::mutex mutex;
  machine_facts facts;
  std::array<device_state, most_devices> devices;
  std::map<std::uintptr_t, allocation> allocations;
  std::size_t pools = 0;
  std::size_t pinned_used = 0;
  std::array<fault, call_kinds> refusals;
  std::array<fault, call_kinds> delayed;
  std::array<std::uint64_t, call_kinds> counts{};
  std::array<std::uint64_t, 5> copied{};
  std::string failure_text;
  std::atomic<std::size_t> streams{0};
  std::atomic<std::size_t> events{0};
  std::atomic<int> global_captures{0};
};
[[nodiscard]] machine& the_machine();

/// Remembers `code` for cudaGetLastError and answers it.
cudaError_t answer(cudaError_t code);
/// The error every call on this device answers from now on, if there is one; else whether this
/// thread may call at all.
[[nodiscard]] cudaError_t standing_error(int device);
[[nodiscard]] int current_device();
void fail_device(int device, cudaError_t code, std::string const& why);
/// Set while a host function runs, where no call is permitted.
[[nodiscard]] bool& inside_host_function();

struct admission {
  cudaError_t refused = cudaSuccess;
  cudaError_t later = cudaSuccess;
};
/// Counts a call and says what was arranged for it.
[[nodiscard]] admission admit(call kind);

/// The allocation that holds all of [at, at + bytes), or null. With the machine's mutex held.
[[nodiscard]] allocation* find_allocation(void const* at, std::size_t bytes);
/// Poisoned memory between guard bytes, or null.
[[nodiscard]] void* reserve(std::size_t bytes);
/// Frees memory of the device or managed memory; checks the guard bytes.
cudaError_t release(void* at);
/// What is left of a pool's allocation once it is freed, and once its stream gets there. With the
/// machine's mutex held.
void leave_pool(allocation& one);
void shrink_pool(allocation const& one);
void wait_for_all_streams(int device);

}  // namespace emulated_cuda
