// SPDX-License-Identifier: Apache-2.0
#pragma once

#if defined(TERRACE_HAS_CUDA)

#include <terrace/core/stream_ref.hpp>
#include <terrace/core/units.hpp>
#include <terrace/shim/cuda.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <utility>

namespace terrace::kernel::cuda {

/// Carries values of the host to a device in the order of one stream without waiting for it: they
/// are copied to pinned memory at once, and on from there when the stream gets that far.
///
/// Cost: 1 MiB of pinned memory; a call waits only when the stream is half a ring behind.
class upload_ring {
 public:
  upload_ring(int device, stream_ref on) : on_{on} {
    shim::device_scope const scope{device};
    void* at = nullptr;
    shim::check(cudaHostAlloc(&at, ring_bytes, cudaHostAllocDefault),
                "allocating the pinned memory of an upload ring");
    ring_ = static_cast<std::byte*>(at);
    for (auto& one : passed_) { one = shim::make_event(device); }
  }
  upload_ring(upload_ring&& other) noexcept
      : on_{other.on_},
        ring_{std::exchange(other.ring_, nullptr)},
        half_{other.half_},
        offset_{other.offset_},
        passed_{std::move(other.passed_)},
        used_{other.used_} {}
  upload_ring& operator=(upload_ring&&) = delete;
  ~upload_ring() {
    if (ring_ != nullptr) { static_cast<void>(cudaFreeHost(ring_)); }
  }

  /// `bytes` from host memory, which is free again on return, to device memory.
  void send(void const* from, std::size_t bytes, void* to) {
    auto const* source = static_cast<std::byte const*>(from);
    auto* target = static_cast<std::byte*>(to);
    while (bytes > 0) {
      std::size_t const piece = std::min(bytes, half_bytes);
      std::byte* const slot = take(piece);
      std::memcpy(slot, source, piece);
      shim::copy(on_, target, slot, piece);
      source += piece;
      target += piece;
      bytes -= piece;
    }
  }

 private:
  static constexpr std::size_t ring_bytes = mib;
  static constexpr std::size_t half_bytes = ring_bytes / 2;

  /// A piece of one half. On leaving a half an event marks its last use, on entering it is waited
  /// for.
  [[nodiscard]] std::byte* take(std::size_t bytes) {
    if (offset_ + bytes > half_bytes) {
      shim::record(on_, passed_[half_].get());
      used_[half_] = true;
      half_ = 1 - half_;
      if (used_[half_]) {
        shim::check(cudaEventSynchronize(passed_[half_].get()), "waiting for earlier uploads");
      }
      offset_ = 0;
    }
    std::byte* const slot = ring_ + half_ * half_bytes + offset_;
    offset_ = round_up(offset_ + bytes, std::size_t{64});
    return slot;
  }

  stream_ref on_;
  std::byte* ring_ = nullptr;
  std::size_t half_ = 0;
  std::size_t offset_ = 0;                    ///< into the half
  std::array<shim::unique_event, 2> passed_;  ///< behind the last use of each half
  std::array<bool, 2> used_{};
};

}  // namespace terrace::kernel::cuda

#endif
