// SPDX-License-Identifier: Apache-2.0
#include "machine.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace emulated_cuda {
namespace {

constexpr std::size_t guard_bytes = 512;
constexpr int guard_value = 0xA5;
constexpr int poison_value = 0xFF;  // NaN in every float format

bool guards_are_whole(std::byte const* at, std::size_t bytes) {
  auto whole = [](std::byte const* from) {
    return std::all_of(
        from, from + guard_bytes, [](std::byte b) { return b == std::byte{guard_value}; });
  };
  return whole(at - guard_bytes) && whole(at + bytes);
}
void give_back(void* at) { std::free(static_cast<std::byte*>(at) - 4096); }

bool capturing() { return the_machine().global_captures > 0; }

cudaError_t allocate_on_device(void** at, std::size_t bytes, int device) {
  if (at == nullptr) { return cudaErrorInvalidValue; }
  *at = nullptr;
  if (cudaError_t const code = standing_error(device); code != cudaSuccess) { return code; }
  if (cudaError_t const code = admit(call::device_allocation).refused; code != cudaSuccess) {
    return code;
  }
  if (bytes == 0) { return cudaSuccess; }
  machine& m = the_machine();
  std::lock_guard const lock{m.mutex};
  device_state& state = m.devices[static_cast<std::size_t>(device)];
  if (bytes > m.facts.device_bytes - std::min(m.facts.device_bytes, state.used)) {
    return cudaErrorMemoryAllocation;
  }
  *at = reserve(bytes);
  if (*at == nullptr) { return cudaErrorMemoryAllocation; }
  state.used += bytes;
  state.peak = std::max(state.peak, state.used);
  m.allocations[reinterpret_cast<std::uintptr_t>(*at)] = {
      bytes, cudaMemoryTypeDevice, device, true, {}, nullptr, false};
  return cudaSuccess;
}

cudaError_t allocate_on_host(void** at, std::size_t bytes) {
  if (at == nullptr) { return cudaErrorInvalidValue; }
  *at = nullptr;
  if (cudaError_t const code = standing_error(current_device()); code != cudaSuccess) {
    return code;
  }
  if (cudaError_t const code = admit(call::pinned_allocation).refused; code != cudaSuccess) {
    return code;
  }
  if (bytes == 0) { return cudaSuccess; }
  machine& m = the_machine();
  std::lock_guard const lock{m.mutex};
  if (bytes > m.facts.pinned_bytes - std::min(m.facts.pinned_bytes, m.pinned_used)) {
    return cudaErrorMemoryAllocation;
  }
  *at = reserve(bytes);
  if (*at == nullptr) { return cudaErrorMemoryAllocation; }
  m.pinned_used += bytes;
  m.allocations[reinterpret_cast<std::uintptr_t>(*at)] = {
      bytes, cudaMemoryTypeHost, current_device(), true, {}, nullptr, false};
  return cudaSuccess;
}

void check_guards(void* at, allocation const& one) {
  if (!guards_are_whole(static_cast<std::byte*>(at), one.bytes) &&
      the_machine().failure_text.empty()) {
    the_machine().failure_text = "guard bytes around an allocation of " +
                                 std::to_string(one.bytes) + " bytes were overwritten";
  }
}

}  // namespace

void* reserve(std::size_t bytes) {
  std::size_t const room = (bytes + 2 * guard_bytes + 4095) / 4096 * 4096;
  // Host memory that direct reads go to is aligned to a page.
  auto* const base = static_cast<std::byte*>(std::aligned_alloc(4096, room + 4096));
  if (base == nullptr) { return nullptr; }
  std::byte* const at = base + 4096;
  std::memset(base, guard_value, 4096);
  std::memset(at, poison_value, bytes);
  std::memset(at + bytes, guard_value, guard_bytes);
  return at;
}

allocation* find_allocation(void const* at, std::size_t bytes) {
  auto& all = the_machine().allocations;
  auto const address = reinterpret_cast<std::uintptr_t>(at);
  auto next = all.upper_bound(address);
  if (next == all.begin()) { return nullptr; }
  auto& [start, one] = *std::prev(next);
  return address - start <= one.bytes && bytes <= one.bytes - (address - start) ? &one : nullptr;
}

cudaError_t release(void* at) {
  machine& m = the_machine();
  std::lock_guard const lock{m.mutex};
  auto const found = m.allocations.find(reinterpret_cast<std::uintptr_t>(at));
  if (found == m.allocations.end() || !found->second.owned) { return cudaErrorInvalidValue; }
  allocation& one = found->second;
  device_state& state = m.devices[static_cast<std::size_t>(one.device)];
  if (one.pool != nullptr) {
    leave_pool(one);
    shrink_pool(one);
  } else if (one.type == cudaMemoryTypeHost) {
    m.pinned_used -= one.bytes;
  } else if (one.type == cudaMemoryTypeDevice) {
    state.used -= one.bytes;
  } else {
    state.used -= std::min(
        state.used,
        static_cast<std::size_t>(std::count(one.resident.begin(), one.resident.end(), true)) *
            page_bytes);
  }
  check_guards(at, one);
  give_back(at);
  m.allocations.erase(found);
  return cudaSuccess;
}

}  // namespace emulated_cuda

using namespace emulated_cuda;

cudaError_t cudaMalloc(void** at, std::size_t bytes) {
  if (capturing()) { return answer(cudaErrorStreamCaptureUnsupported); }
  return answer(allocate_on_device(at, bytes, current_device()));
}
cudaError_t cudaMallocAsync(void** at, std::size_t bytes, cudaStream_t) {
  if (capturing()) { return answer(cudaErrorNotSupported); }
  return answer(allocate_on_device(at, bytes, current_device()));
}
cudaError_t cudaFree(void* at) {
  if (at == nullptr) { return cudaSuccess; }
  if (capturing()) { return answer(cudaErrorStreamCaptureUnsupported); }
  int device = current_device();
  {
    std::lock_guard const lock{the_machine().mutex};
    allocation const* const one = find_allocation(at, 0);
    if (one == nullptr || one->type == cudaMemoryTypeHost) { return answer(cudaErrorInvalidValue); }
    device = one->device;
  }
  wait_for_all_streams(device);
  cudaError_t const code = release(at);
  cudaError_t const standing = standing_error(device);
  return answer(code != cudaSuccess ? code : standing);
}
cudaError_t cudaHostAlloc(void** at, std::size_t bytes, unsigned) {
  return answer(allocate_on_host(at, bytes));
}
cudaError_t cudaMallocHost(void** at, std::size_t bytes, unsigned) {
  return answer(allocate_on_host(at, bytes));
}
cudaError_t cudaFreeHost(void* at) {
  if (at == nullptr) { return cudaSuccess; }
  {
    std::lock_guard const lock{the_machine().mutex};
    allocation const* const one = find_allocation(at, 0);
    if (one == nullptr || one->type != cudaMemoryTypeHost) { return answer(cudaErrorInvalidValue); }
  }
  for (int device = 0; device < the_machine().facts.devices; ++device) {
    wait_for_all_streams(device);
  }
  return answer(release(at));
}
cudaError_t cudaHostRegister(void* at, std::size_t bytes, unsigned) {
  if (cudaError_t const code = standing_error(current_device()); code != cudaSuccess) {
    return answer(code);
  }
  if (cudaError_t const code = admit(call::pinned_allocation).refused; code != cudaSuccess) {
    return answer(code);
  }
  machine& m = the_machine();
  std::lock_guard const lock{m.mutex};
  if (at == nullptr || bytes == 0 || find_allocation(at, 0) != nullptr) {
    return answer(cudaErrorInvalidValue);
  }
  if (bytes > m.facts.pinned_bytes - std::min(m.facts.pinned_bytes, m.pinned_used)) {
    return answer(cudaErrorMemoryAllocation);
  }
  m.pinned_used += bytes;
  m.allocations[reinterpret_cast<std::uintptr_t>(at)] = {
      bytes, cudaMemoryTypeHost, current_device(), false, {}, nullptr, false};
  return cudaSuccess;
}
cudaError_t cudaHostUnregister(void* at) {
  for (int device = 0; device < the_machine().facts.devices; ++device) {
    wait_for_all_streams(device);
  }
  machine& m = the_machine();
  std::lock_guard const lock{m.mutex};
  auto const found = m.allocations.find(reinterpret_cast<std::uintptr_t>(at));
  if (found == m.allocations.end() || found->second.owned) { return answer(cudaErrorInvalidValue); }
  m.pinned_used -= found->second.bytes;
  m.allocations.erase(found);
  return cudaSuccess;
}
cudaError_t cudaHostGetDevicePointer(void** device_at, void* host_at, unsigned) {
  std::lock_guard const lock{the_machine().mutex};
  allocation const* const one = find_allocation(host_at, 0);
  if (one == nullptr || one->type != cudaMemoryTypeHost) { return answer(cudaErrorInvalidValue); }
  *device_at = host_at;
  return cudaSuccess;
}
cudaError_t cudaMallocManaged(void** at, std::size_t bytes, unsigned) {
  if (capturing()) { return answer(cudaErrorStreamCaptureUnsupported); }
  if (at == nullptr || bytes == 0) { return answer(cudaErrorInvalidValue); }
  *at = nullptr;
  if (cudaError_t const code = standing_error(current_device()); code != cudaSuccess) {
    return answer(code);
  }
  if (cudaError_t const code = admit(call::managed_allocation).refused; code != cudaSuccess) {
    return answer(code);
  }
  *at = reserve(bytes);
  if (*at == nullptr) { return answer(cudaErrorMemoryAllocation); }
  machine& m = the_machine();
  std::lock_guard const lock{m.mutex};
  m.allocations[reinterpret_cast<std::uintptr_t>(*at)] = {
      bytes,
      cudaMemoryTypeManaged,
      current_device(),
      true,
      std::vector<bool>((bytes + page_bytes - 1) / page_bytes),
      nullptr,
      false};
  return cudaSuccess;
}
cudaError_t cudaMemAdvise(void const* at,
                          std::size_t bytes,
                          cudaMemoryAdvise,
                          cudaMemLocation where) {
  machine& m = the_machine();
  if (!m.facts.concurrent_managed_access && where.type == cudaMemLocationTypeDevice) {
    return answer(cudaErrorInvalidDevice);
  }
  std::lock_guard const lock{m.mutex};
  allocation const* const one = find_allocation(at, bytes);
  bool const known = one != nullptr && one->type == cudaMemoryTypeManaged;
  return known ? cudaSuccess : answer(cudaErrorInvalidValue);
}
cudaError_t cudaMemPrefetchAsync(
    void const* at, std::size_t bytes, cudaMemLocation to, unsigned, cudaStream_t) {
  machine& m = the_machine();
  if (cudaError_t const code = standing_error(current_device()); code != cudaSuccess) {
    return answer(code);
  }
  if (!m.facts.concurrent_managed_access) { return answer(cudaErrorInvalidDevice); }
  if (cudaError_t const code = admit(call::copy).refused; code != cudaSuccess) {
    return answer(code);
  }
  std::lock_guard const lock{m.mutex};
  allocation* const one = find_allocation(at, bytes);
  if (one == nullptr || one->type != cudaMemoryTypeManaged) {
    return answer(cudaErrorInvalidValue);
  }
  if (bytes == 0) { return cudaSuccess; }
  // Residency is booked when the call is made; there is nothing to move.
  auto const start =
      std::prev(m.allocations.upper_bound(reinterpret_cast<std::uintptr_t>(at)))->first;
  std::size_t const offset = reinterpret_cast<std::uintptr_t>(at) - start;
  device_state& state = m.devices[static_cast<std::size_t>(one->device)];
  for (std::size_t page = offset / page_bytes; page <= (offset + bytes - 1) / page_bytes; ++page) {
    bool const wanted = to.type == cudaMemLocationTypeDevice;
    if (one->resident[page] == wanted) { continue; }
    if (wanted && state.used + page_bytes > m.facts.device_bytes) {
      break;
    }  // oversubscribed: it stays on the host
    one->resident[page] = wanted;
    state.used = wanted ? state.used + page_bytes : state.used - page_bytes;
    state.peak = std::max(state.peak, state.used);
  }
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(std::size_t* free_bytes, std::size_t* total_bytes) {
  if (cudaError_t const code = standing_error(current_device()); code != cudaSuccess) {
    return answer(code);
  }
  machine& m = the_machine();
  std::lock_guard const lock{m.mutex};
  *total_bytes = m.facts.device_bytes;
  *free_bytes =
      m.facts.device_bytes -
      std::min(m.facts.device_bytes, m.devices[static_cast<std::size_t>(current_device())].used);
  return cudaSuccess;
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, void const* at) {
  std::lock_guard const lock{the_machine().mutex};
  allocation const* const one = find_allocation(at, 1);
  void* const address = const_cast<void*>(at);
  if (one == nullptr) {
    *attributes = {cudaMemoryTypeUnregistered, cudaInvalidDeviceId, nullptr, address};
  } else {
    *attributes = {
        one->type, one->device, address, one->type == cudaMemoryTypeDevice ? nullptr : address};
  }
  return cudaSuccess;
}
