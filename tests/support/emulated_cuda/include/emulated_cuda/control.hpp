// SPDX-License-Identifier: Apache-2.0
#pragma once

// What tests may do to the emulated devices.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

namespace emulated_cuda {

/// A machine as a test wants it. Takes effect with `reset`.
struct machine_facts {
  int devices = 1;
  std::size_t device_bytes = std::size_t{2} << 30U;
  std::size_t pinned_bytes = std::size_t{8} << 30U;
  bool concurrent_managed_access = true;
  bool pageable_memory_access = false;
  bool integrated = false;
};

/// Waits for all streams, forgets faults and failures. Errors: std::logic_error when an allocation
/// is still there or its guard bytes were overwritten.
void reset(machine_facts const& facts = {});

enum class call : unsigned char {
  device_allocation,
  pinned_allocation,
  managed_allocation,
  copy,
  fill,
  launch
};
/// The n-th next call of this kind (1 is the next one) answers `code` and does nothing.
void fail_call(call kind, unsigned nth, cudaError_t code);
/// The n-th next call of this kind is accepted; when its turn comes on the stream, the device fails
/// with `code` for good.
void fail_later(call kind, unsigned nth, cudaError_t code);

/// What exists now.
struct usage {
  std::size_t allocations = 0;
  std::size_t device_bytes = 0;  ///< of all devices, with what is resident of managed memory
  std::size_t pinned_bytes = 0;
  std::size_t managed_bytes = 0;
  std::size_t streams = 0;
  std::size_t events = 0;
};
[[nodiscard]] usage current_usage();
/// Most bytes that device `device` has held since the last reset.
[[nodiscard]] std::size_t peak_device_bytes(int device = 0);
/// Calls accepted since the last reset.
[[nodiscard]] std::uint64_t count(call kind);
/// Bytes that copies of `kind` have moved since the last reset.
[[nodiscard]] std::uint64_t copied_bytes(cudaMemcpyKind kind);

/// The sentence of the first failure on a device since the last reset; empty without one.
[[nodiscard]] std::string failure_text();
/// Queues a function on a stream, as a kernel that is written in the test.
void enqueue(cudaStream_t on, std::function<void()> work);

}  // namespace emulated_cuda
