// SPDX-License-Identifier: Apache-2.0
// Stream-ordered pools. A pool holds whole units of device memory; what is freed in it may be
// allocated again at once, as by a caller that keeps to one stream.
#include "machine.hpp"

#include <algorithm>

struct CUmemPoolHandle_st {
  int device = 0;
  std::size_t most = 0;       ///< bytes it may reserve
  std::size_t threshold = 0;  ///< bytes it keeps reserved at least once it had them
  std::size_t reserved = 0;
  std::size_t most_reserved = 0;
  std::size_t used = 0;
  std::size_t most_used = 0;
  std::size_t allocations = 0;  ///< whose stream has not freed them yet
  bool ending = false;
};

namespace emulated_cuda {
namespace {

constexpr std::size_t alignment = 512;

std::size_t whole(std::size_t bytes, std::size_t unit) { return (bytes + unit - 1) / unit * unit; }

/// Gives back what the pool has reserved beyond its use and `keep`.
void shrink(CUmemPoolHandle_st& pool, std::size_t keep) {
  std::size_t const wanted =
      std::max(whole(pool.used, pool_unit_bytes), std::min(pool.reserved, keep));
  device_state& state = the_machine().devices[static_cast<std::size_t>(pool.device)];
  state.used -= pool.reserved - wanted;
  pool.reserved = wanted;
}
void remove(cudaMemPool_t pool) {
  shrink(*pool, 0);
  --the_machine().pools;
  delete pool;
}

/// Reserves what `bytes` more take; false without room in the pool or on the device.
bool grow(CUmemPoolHandle_st& pool, std::size_t bytes) {
  machine& m = the_machine();
  device_state& state = m.devices[static_cast<std::size_t>(pool.device)];
  std::size_t const wanted = std::max(pool.reserved, whole(pool.used + bytes, pool_unit_bytes));
  if (wanted > pool.most || wanted - pool.reserved > m.facts.device_bytes - state.used) {
    return false;
  }
  state.used += wanted - pool.reserved;
  state.peak = std::max(state.peak, state.used);
  pool.reserved = wanted;
  pool.most_reserved = std::max(pool.most_reserved, wanted);
  pool.used += bytes;
  pool.most_used = std::max(pool.most_used, pool.used);
  return true;
}

}  // namespace

void leave_pool(allocation& one) {
  if (one.leaving) { return; }
  one.leaving = true;
  one.pool->used -= whole(one.bytes, alignment);
}
void shrink_pool(allocation const& one) {
  shrink(*one.pool, one.pool->threshold);
  --one.pool->allocations;
  if (one.pool->ending && one.pool->allocations == 0) { remove(one.pool); }
}

}  // namespace emulated_cuda

using namespace emulated_cuda;

cudaError_t cudaMemPoolCreate(cudaMemPool_t* pool, cudaMemPoolProps const* properties) {
  auto const& where = properties->location;
  machine& m = the_machine();
  if (properties->allocType != cudaMemAllocationTypePinned ||
      where.type != cudaMemLocationTypeDevice || where.id < 0 || where.id >= m.facts.devices) {
    return answer(cudaErrorInvalidValue);
  }
  if (cudaError_t const code = standing_error(where.id); code != cudaSuccess) {
    return answer(code);
  }
  std::lock_guard const lock{m.mutex};
  *pool = new CUmemPoolHandle_st;
  (*pool)->device = where.id;
  (*pool)->most = properties->maxSize != 0 ? properties->maxSize : SIZE_MAX / 2;
  ++m.pools;
  return cudaSuccess;
}
cudaError_t cudaMemPoolDestroy(cudaMemPool_t pool) {
  if (pool == nullptr) { return answer(cudaErrorInvalidValue); }
  machine& m = the_machine();
  std::lock_guard const lock{m.mutex};
  pool->ending = true;
  if (pool->allocations == 0) { remove(pool); }
  return cudaSuccess;
}
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value) {
  if (attribute != cudaMemPoolAttrReleaseThreshold) { return answer(cudaErrorInvalidValue); }
  std::lock_guard const lock{the_machine().mutex};
  pool->threshold = *static_cast<std::uint64_t*>(value);
  return cudaSuccess;
}
cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value) {
  std::lock_guard const lock{the_machine().mutex};
  auto& number = *static_cast<std::uint64_t*>(value);
  switch (attribute) {
    case cudaMemPoolAttrReleaseThreshold:
      number = pool->threshold;
      return cudaSuccess;
    case cudaMemPoolAttrReservedMemCurrent:
      number = pool->reserved;
      return cudaSuccess;
    case cudaMemPoolAttrReservedMemHigh:
      number = pool->most_reserved;
      return cudaSuccess;
    case cudaMemPoolAttrUsedMemCurrent:
      number = pool->used;
      return cudaSuccess;
    case cudaMemPoolAttrUsedMemHigh:
      number = pool->most_used;
      return cudaSuccess;
  }
  return answer(cudaErrorInvalidValue);
}
cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, std::size_t bytes_to_keep) {
  std::lock_guard const lock{the_machine().mutex};
  shrink(*pool, bytes_to_keep);
  return cudaSuccess;
}
cudaError_t cudaMallocFromPoolAsync(void** at,
                                    std::size_t bytes,
                                    cudaMemPool_t pool,
                                    cudaStream_t) {
  if (at == nullptr || pool == nullptr) { return answer(cudaErrorInvalidValue); }
  *at = nullptr;
  machine& m = the_machine();
  if (m.global_captures > 0) { return answer(cudaErrorNotSupported); }
  if (cudaError_t const code = standing_error(pool->device); code != cudaSuccess) {
    return answer(code);
  }
  if (cudaError_t const code = admit(call::device_allocation).refused; code != cudaSuccess) {
    return answer(code);
  }
  if (bytes == 0) { return cudaSuccess; }
  std::lock_guard const lock{m.mutex};
  if (!grow(*pool, whole(bytes, alignment))) { return answer(cudaErrorMemoryAllocation); }
  *at = reserve(bytes);
  if (*at == nullptr) { return answer(cudaErrorMemoryAllocation); }
  ++pool->allocations;
  m.allocations[reinterpret_cast<std::uintptr_t>(*at)] = {
      bytes, cudaMemoryTypeDevice, pool->device, true, {}, pool, false};
  return cudaSuccess;
}
