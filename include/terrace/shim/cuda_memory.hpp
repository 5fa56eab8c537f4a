// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/shim/cuda.hpp>

#if defined(TERRACE_HAS_CUDA)

#include <terrace/core/stream_ref.hpp>
#include <terrace/core/units.hpp>

#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>

/// Owners of the memory that CUDA hands out, and what may be said of it. A `try_` function answers
/// nothing when there is no memory left; every other failure is a cuda_error.
namespace terrace::shim {

enum class memory_kind : unsigned char { device, pinned, managed };

/// Owns one allocation of CUDA's.
template <memory_kind Kind>
class cuda_buffer {
 public:
  cuda_buffer() = default;
  cuda_buffer(void* at, std::size_t bytes) noexcept
      : data_{static_cast<std::byte*>(at)}, bytes_{bytes} {}
  cuda_buffer(cuda_buffer&& other) noexcept
      : data_{std::exchange(other.data_, nullptr)}, bytes_{std::exchange(other.bytes_, 0)} {}
  cuda_buffer& operator=(cuda_buffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~cuda_buffer() {
    if (data_ == nullptr) { return; }
    static_cast<void>(Kind == memory_kind::pinned ? cudaFreeHost(data_) : cudaFree(data_));
  }

  [[nodiscard]] std::byte* data() const noexcept { return data_; }
  [[nodiscard]] std::size_t size() const noexcept { return bytes_; }
  [[nodiscard]] std::span<std::byte> bytes() const noexcept { return {data_, bytes_}; }

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};
/// Memory of a device.
using device_buffer = cuda_buffer<memory_kind::device>;
/// Host memory that stays where it is: copy engines run at full speed, and kernels of every device
/// read it at the same address.
using pinned_buffer = cuda_buffer<memory_kind::pinned>;
/// Memory that moves between host and devices, page by page, under one address.
using managed_buffer = cuda_buffer<memory_kind::managed>;

template <memory_kind Kind>
[[nodiscard]] std::optional<cuda_buffer<Kind>> try_make_buffer(int device, std::size_t bytes) {
  if (bytes == 0) { return cuda_buffer<Kind>{}; }
  device_scope const scope{device};
  void* at = nullptr;
  cudaError_t code = cudaSuccess;
  if constexpr (Kind == memory_kind::device) {
    code = cudaMalloc(&at, bytes);
  } else if constexpr (Kind == memory_kind::pinned) {
    code = cudaHostAlloc(&at, bytes, cudaHostAllocPortable | cudaHostAllocMapped);
  } else {
    code = cudaMallocManaged(&at, bytes);
  }
  if (code == cudaErrorMemoryAllocation) {
    static_cast<void>(cudaGetLastError());
    return std::nullopt;
  }
  if (code != cudaSuccess) {
    constexpr char const* names[] = {"device", "pinned", "managed"};
    fail(code,
         "taking " + format_size(bytes) + " of " + names[static_cast<unsigned>(Kind)] +
             " memory for CUDA device " + std::to_string(device));
  }
  return cuda_buffer<Kind>{at, bytes};
}
[[nodiscard]] inline std::optional<pinned_buffer> try_make_pinned(int device, std::size_t bytes) {
  return try_make_buffer<memory_kind::pinned>(device, bytes);
}
[[nodiscard]] inline std::optional<managed_buffer> try_make_managed(int device, std::size_t bytes) {
  return try_make_buffer<memory_kind::managed>(device, bytes);
}
/// Errors: out_of_capacity with what is free; cuda_error.
[[nodiscard]] inline device_buffer make_device_buffer(int device, std::size_t bytes) {
  if (auto made = try_make_buffer<memory_kind::device>(device, bytes)) { return std::move(*made); }
  auto const free = query_device_memory(device).free_bytes;
  throw out_of_capacity{"CUDA device " + std::to_string(device) + " has no room for " +
                            format_size(bytes) + " more, " + format_size(free) +
                            " are free; lower --vram or close other programs that use it",
                        bytes,
                        free};
}
/// Errors: out_of_capacity; cuda_error.
[[nodiscard]] inline pinned_buffer make_pinned_buffer(int device, std::size_t bytes) {
  if (auto made = try_make_pinned(device, bytes)) { return std::move(*made); }
  throw out_of_capacity{"the system gives no " + format_size(bytes) +
                            " more of memory that may be pinned for CUDA device " +
                            std::to_string(device) + "; lower the sizes of the tiers",
                        bytes,
                        0};
}

/// Memory of one device, allocated and freed in the order of a stream. What is freed stays in the
/// pool, for whoever asks next, until `trim`.
///
/// The driver reserves whole units of device memory for a pool: it holds at most `most_bytes`
/// rounded up to a unit.
class memory_pool {
 public:
  static constexpr std::size_t unit_bytes = 32 * mib;

  memory_pool() = default;
  memory_pool(int device, std::size_t most_bytes)
      : most_{round_up(std::max<std::size_t>(most_bytes, 1), unit_bytes)} {
    cudaMemPoolProps properties{};
    properties.allocType = cudaMemAllocationTypePinned;
    properties.location.type = cudaMemLocationTypeDevice;
    properties.location.id = device;
#if CUDART_VERSION >= 12030
    properties.maxSize = most_;
#endif
    cudaMemPool_t pool = nullptr;
    std::string const what = "making a memory pool on CUDA device " + std::to_string(device);
    check(cudaMemPoolCreate(&pool, &properties), what);
    pool_ = unique_cuda<cudaMemPool_t, cudaMemPoolDestroy>{pool};
    std::uint64_t keep = most_;
    check(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep), what);
  }

  /// Usable by later work on `on`, and by anything once the host has seen that stream get here.
  /// Null when neither the pool nor the device has room.
  [[nodiscard]] std::byte* try_allocate(stream_ref on, std::size_t bytes) {
    if (auto* const at = try_once(on, bytes)) { return at; }
    // Units that hold nothing may be of the wrong sizes.
    synchronize(on);
    trim();
    return try_once(on, bytes);
  }
  /// The memory is free once `on` gets here.
  void release(stream_ref on, std::byte* at) noexcept {
    static_cast<void>(cudaFreeAsync(at, on.get()));
  }
  /// Gives back what holds no allocation.
  void trim() { check(cudaMemPoolTrimTo(pool_.get(), 0), "trimming a memory pool"); }

  /// What the pool holds of the device, free or not.
  [[nodiscard]] std::size_t reserved_bytes() const {
    std::uint64_t bytes = 0;
    check(cudaMemPoolGetAttribute(pool_.get(), cudaMemPoolAttrReservedMemCurrent, &bytes),
          "asking a memory pool for its size");
    return bytes;
  }

 private:
  [[nodiscard]] std::byte* try_once(stream_ref on, std::size_t bytes) {
    void* at = nullptr;
    cudaError_t const code = cudaMallocFromPoolAsync(&at, bytes, pool_.get(), on.get());
    if (code == cudaErrorMemoryAllocation) {
      static_cast<void>(cudaGetLastError());
      return nullptr;
    }
    if (code != cudaSuccess) {
      fail(code, "taking " + format_size(bytes) + " from a pool of device memory");
    }
    if (reserved_bytes() > most_) {  // a runtime that knows no limit for pools
      release(on, static_cast<std::byte*>(at));
      return nullptr;
    }
    return static_cast<std::byte*>(at);
  }

  std::size_t most_ = 0;
  unique_cuda<cudaMemPool_t, cudaMemPoolDestroy> pool_;
};

/// Where managed memory may be: a device, or the host.
class memory_place {
 public:
  [[nodiscard]] static constexpr memory_place host() noexcept { return memory_place{-1}; }
  [[nodiscard]] static constexpr memory_place device(int number) noexcept {
    return memory_place{number};
  }
#if CUDART_VERSION >= 13000
  [[nodiscard]] cudaMemLocation location() const noexcept {
    if (device_ < 0) { return {cudaMemLocationTypeHost, 0}; }
    return {cudaMemLocationTypeDevice, device_};
  }
#else
  [[nodiscard]] int location() const noexcept { return device_ < 0 ? cudaCpuDeviceId : device_; }
#endif

 private:
  explicit constexpr memory_place(int device) noexcept : device_{device} {}
  int device_;
};

/// Pages of `range` are made in `place` and come back there when nothing speaks against it.
inline void prefer(std::span<std::byte> range, memory_place place) {
  check(cudaMemAdvise(
            range.data(), range.size(), cudaMemAdviseSetPreferredLocation, place.location()),
        "choosing where managed memory lives");
}
/// Whoever computes in `place` reads `range` where it is, without moving its pages.
inline void map_for(std::span<std::byte> range, memory_place place) {
  check(cudaMemAdvise(range.data(), range.size(), cudaMemAdviseSetAccessedBy, place.location()),
        "mapping managed memory");
}
/// Moves pages to `place` in the order of the stream; where they do not fit they stay.
inline void prefetch(stream_ref on, std::span<std::byte> range, memory_place place) {
#if CUDART_VERSION >= 13000
  cudaError_t const code =
      cudaMemPrefetchAsync(range.data(), range.size(), place.location(), 0, on.get());
#else
  cudaError_t const code =
      cudaMemPrefetchAsync(range.data(), range.size(), place.location(), on.get());
#endif
  if (code != cudaSuccess) {
    fail(code, "moving " + format_size(range.size()) + " of managed memory");
  }
}

}  // namespace terrace::shim

#endif
