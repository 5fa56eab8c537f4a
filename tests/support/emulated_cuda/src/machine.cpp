// SPDX-License-Identifier: Apache-2.0
#include "machine.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <vector>

namespace emulated_cuda {
namespace {
thread_local int chosen_device = 0;
thread_local cudaError_t last_error = cudaSuccess;
}  // namespace

machine& the_machine() {
  static machine* const it = new machine;  // outlives threads that end late
  return *it;
}
bool& inside_host_function() {
  static thread_local bool inside = false;
  return inside;
}
int current_device() { return chosen_device; }

cudaError_t answer(cudaError_t code) {
  if (code != cudaSuccess && code != cudaErrorNotReady) { last_error = code; }
  return code;
}
cudaError_t standing_error(int device) {
  if (inside_host_function()) { return cudaErrorNotPermitted; }
  if (the_machine().facts.devices == 0) { return cudaErrorNoDevice; }
  return static_cast<cudaError_t>(
      the_machine().devices[static_cast<std::size_t>(device)].failure.load());
}
void fail_device(int device, cudaError_t code, std::string const& why) {
  machine& m = the_machine();
  int expected = cudaSuccess;
  if (!m.devices[static_cast<std::size_t>(device)].failure.compare_exchange_strong(expected,
                                                                                   code)) {
    return;
  }
  std::lock_guard const lock{m.mutex};
  if (m.failure_text.empty()) { m.failure_text = why; }
  std::fprintf(stderr, "emulated device %d: %s\n", device, why.c_str());
}

admission admit(call kind) {
  machine& m = the_machine();
  std::lock_guard const lock{m.mutex};
  auto const index = static_cast<std::size_t>(kind);
  auto due = [](fault& one) {
    if (one.countdown == 0 || --one.countdown > 0) { return cudaSuccess; }
    return one.code;
  };
  admission const arranged{due(m.refusals[index]), due(m.delayed[index])};
  if (arranged.refused == cudaSuccess) { ++m.counts[index]; }
  return arranged;
}

void fail_call(call kind, unsigned nth, cudaError_t code) {
  std::lock_guard const lock{the_machine().mutex};
  the_machine().refusals[static_cast<std::size_t>(kind)] = {nth, code};
}
void fail_later(call kind, unsigned nth, cudaError_t code) {
  std::lock_guard const lock{the_machine().mutex};
  the_machine().delayed[static_cast<std::size_t>(kind)] = {nth, code};
}

namespace {

/// A device that failed does not get to what was freed in the order of its streams; that memory
/// goes with the device.
void release_what_a_failure_left() {
  std::vector<void*> freed;
  {
    std::lock_guard const lock{the_machine().mutex};
    for (auto const& [address, one] : the_machine().allocations) {
      if (one.leaving) { freed.push_back(reinterpret_cast<void*>(address)); }
    }
  }
  for (void* const at : freed) { static_cast<void>(release(at)); }
}

}  // namespace

void reset(machine_facts const& facts) {
  machine& m = the_machine();
  for (int device = 0; device < m.facts.devices; ++device) { wait_for_all_streams(device); }
  release_what_a_failure_left();
  std::lock_guard const lock{m.mutex};
  std::size_t const left = m.allocations.size() + m.pools;
  m.facts = facts;
  m.refusals = {};
  m.delayed = {};
  m.counts = {};
  m.copied = {};
  std::string const corrupted = m.failure_text.starts_with("guard bytes") ? m.failure_text : "";
  m.failure_text.clear();
  for (auto& device : m.devices) {
    device.failure = cudaSuccess;
    device.peak = device.used;
  }
  chosen_device = 0;
  last_error = cudaSuccess;
  if (left != 0) {
    throw std::logic_error{std::to_string(left) +
                           " allocations or pools of the emulated devices were never freed"};
  }
  if (!corrupted.empty()) { throw std::logic_error{corrupted}; }
}

usage current_usage() {
  machine& m = the_machine();
  std::lock_guard const lock{m.mutex};
  usage now;
  now.allocations = m.allocations.size();
  for (auto const& device : m.devices) { now.device_bytes += device.used; }
  now.pinned_bytes = m.pinned_used;
  for (auto const& [at, one] : m.allocations) {
    if (one.type == cudaMemoryTypeManaged) { now.managed_bytes += one.bytes; }
  }
  now.streams = m.streams;
  now.events = m.events;
  return now;
}
std::size_t peak_device_bytes(int device) {
  std::lock_guard const lock{the_machine().mutex};
  return the_machine().devices[static_cast<std::size_t>(device)].peak;
}
std::uint64_t count(call kind) {
  std::lock_guard const lock{the_machine().mutex};
  return the_machine().counts[static_cast<std::size_t>(kind)];
}
std::uint64_t copied_bytes(cudaMemcpyKind kind) {
  std::lock_guard const lock{the_machine().mutex};
  return the_machine().copied[static_cast<std::size_t>(kind)];
}
std::string failure_text() {
  std::lock_guard const lock{the_machine().mutex};
  return the_machine().failure_text;
}

}  // namespace emulated_cuda

using namespace emulated_cuda;

namespace {
struct error_entry {
  cudaError_t code;
  char const* name;
  char const* text;
};
constexpr error_entry error_table[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInitializationError, "cudaErrorInitializationError", "initialization error"},
    {cudaErrorInvalidConfiguration,
     "cudaErrorInvalidConfiguration",
     "invalid configuration argument"},
    {cudaErrorInvalidMemcpyDirection,
     "cudaErrorInvalidMemcpyDirection",
     "invalid copy direction for memcpy"},
    {cudaErrorInsufficientDriver,
     "cudaErrorInsufficientDriver",
     "CUDA driver version is insufficient"},
    {cudaErrorInvalidDeviceFunction, "cudaErrorInvalidDeviceFunction", "invalid device function"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorECCUncorrectable, "cudaErrorECCUncorrectable", "uncorrectable ECC error encountered"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorIllegalState,
     "cudaErrorIllegalState",
     "the operation cannot be performed in the present state"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorIllegalAddress,
     "cudaErrorIllegalAddress",
     "an illegal memory access was encountered"},
    {cudaErrorLaunchTimeout, "cudaErrorLaunchTimeout", "the launch timed out and was terminated"},
    {cudaErrorAssert, "cudaErrorAssert", "device-side assert triggered"},
    {cudaErrorIllegalInstruction,
     "cudaErrorIllegalInstruction",
     "an illegal instruction was encountered"},
    {cudaErrorMisalignedAddress, "cudaErrorMisalignedAddress", "misaligned address"},
    {cudaErrorLaunchFailure, "cudaErrorLaunchFailure", "unspecified launch failure"},
    {cudaErrorNotPermitted, "cudaErrorNotPermitted", "operation not permitted"},
    {cudaErrorNotSupported, "cudaErrorNotSupported", "operation not supported"},
    {cudaErrorStreamCaptureUnsupported,
     "cudaErrorStreamCaptureUnsupported",
     "operation not permitted when stream is capturing"},
    {cudaErrorStreamCaptureInvalidated,
     "cudaErrorStreamCaptureInvalidated",
     "operation failed due to a previous error during capture"},
    {cudaErrorStreamCaptureUnjoined,
     "cudaErrorStreamCaptureUnjoined",
     "capturing stream has unjoined work"},
    {cudaErrorUnknown, "cudaErrorUnknown", "unknown error"},
};
error_entry const* entry_of(cudaError_t code) {
  auto const* const found = std::find_if(std::begin(error_table),
                                         std::end(error_table),
                                         [&](error_entry const& e) { return e.code == code; });
  return found == std::end(error_table) ? nullptr : found;
}
bool exists(int device) { return device >= 0 && device < the_machine().facts.devices; }

int attribute_of(cudaDeviceAttr attribute) {
  machine_facts const& facts = the_machine().facts;
  switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock:
      return 1024;
    case cudaDevAttrMaxSharedMemoryPerBlock:
      return 48 << 10;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      return 227 << 10;
    case cudaDevAttrWarpSize:
      return 32;
    case cudaDevAttrMultiProcessorCount:
      return 4;
    case cudaDevAttrIntegrated:
      return facts.integrated ? 1 : 0;
    case cudaDevAttrCanMapHostMemory:
      return 1;
    case cudaDevAttrAsyncEngineCount:
      return 2;
    case cudaDevAttrUnifiedAddressing:
      return 1;
    case cudaDevAttrComputeCapabilityMajor:
      return 9;
    case cudaDevAttrComputeCapabilityMinor:
      return 0;
    case cudaDevAttrManagedMemory:
      return 1;
    case cudaDevAttrPageableMemoryAccess:
      return facts.pageable_memory_access ? 1 : 0;
    case cudaDevAttrConcurrentManagedAccess:
      return facts.concurrent_managed_access ? 1 : 0;
  }
  return 0;
}
}  // namespace

char const* cudaGetErrorName(cudaError_t code) {
  auto const* const entry = entry_of(code);
  return entry != nullptr ? entry->name : "unrecognized error code";
}
char const* cudaGetErrorString(cudaError_t code) {
  auto const* const entry = entry_of(code);
  return entry != nullptr ? entry->text : "unrecognized error code";
}
cudaError_t cudaPeekAtLastError() {
  cudaError_t const standing = standing_error(current_device());
  return standing != cudaSuccess ? standing : last_error;
}
cudaError_t cudaGetLastError() {
  cudaError_t const code = cudaPeekAtLastError();
  last_error = cudaSuccess;
  return code;
}

cudaError_t cudaGetDeviceCount(int* count) {
  *count = the_machine().facts.devices;
  return *count > 0 ? cudaSuccess : answer(cudaErrorNoDevice);
}
cudaError_t cudaGetDevice(int* device) {
  *device = chosen_device;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  if (!exists(device)) { return answer(cudaErrorInvalidDevice); }
  chosen_device = device;
  return answer(standing_error(device));
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  if (!exists(device)) { return answer(cudaErrorInvalidDevice); }
  *value = attribute_of(attribute);
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* facts, int device) {
  if (!exists(device)) { return answer(cudaErrorInvalidDevice); }
  *facts = {};
  std::strcpy(facts->name, "emulated device (host threads)");
  facts->totalGlobalMem = the_machine().facts.device_bytes;
  facts->sharedMemPerBlock =
      static_cast<std::size_t>(attribute_of(cudaDevAttrMaxSharedMemoryPerBlock));
  facts->sharedMemPerBlockOptin =
      static_cast<std::size_t>(attribute_of(cudaDevAttrMaxSharedMemoryPerBlockOptin));
  facts->warpSize = 32;
  facts->maxThreadsPerBlock = 1024;
  facts->major = 9;
  facts->multiProcessorCount = attribute_of(cudaDevAttrMultiProcessorCount);
  facts->integrated = attribute_of(cudaDevAttrIntegrated);
  facts->canMapHostMemory = 1;
  facts->asyncEngineCount = 2;
  facts->managedMemory = 1;
  facts->concurrentManagedAccess = attribute_of(cudaDevAttrConcurrentManagedAccess);
  facts->pageableMemoryAccess = attribute_of(cudaDevAttrPageableMemoryAccess);
  facts->unifiedAddressing = 1;
  return cudaSuccess;
}
cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  if (!exists(device) || !exists(peer)) { return answer(cudaErrorInvalidDevice); }
  *can = device != peer ? 1 : 0;
  return cudaSuccess;
}
cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned) {
  return exists(peer) && peer != chosen_device ? cudaSuccess : answer(cudaErrorInvalidDevice);
}
cudaError_t cudaDriverGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
