// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/tier/device_lane.hpp>

#if defined(TERRACE_HAS_CUDA)

#include <terrace/concepts/memory_tier.hpp>
#include <terrace/core/stream_ref.hpp>
#include <terrace/core/units.hpp>
#include <terrace/shim/cuda_memory.hpp>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>

namespace terrace {

/// A device's own memory, from a stream-ordered pool: freed memory is reused without a word to the
/// driver's global allocator, and none of it synchronises the device.
///
/// A block is allocated and freed in the order of the lane's `up` stream, the one that fills it: it
/// may be used once a copy into it has arrived, or after `zero`, and is deallocated once nothing
/// reads it. `try_allocate` also answers nothing when the pool cannot serve a size although the cap
/// leaves room, or when the device itself is full: evicting helps either way. The pool holds whole
/// units of 32 MiB, the last one perhaps beyond the cap. Not thread-safe.
class vram {
 public:
  struct options {
    int device = 0;
    staging_options staging{};
  };
  struct handle {
    std::byte* at = nullptr;
    int device = 0;
    friend bool operator==(handle const&, handle const&) = default;
  };
  static constexpr std::string_view name = "vram";
  static constexpr tier_traits traits{
      .device_readable = true, .device_local = true, .granularity = 4096};

  /// Errors: contract_error for a device that is not there; out_of_capacity without memory for staging; cuda_error.
  explicit vram(std::size_t capacity_bytes) : vram{capacity_bytes, options{}} {}
  vram(std::size_t capacity_bytes, options const& wanted) : capacity_{capacity_bytes} {
    tier::detail::require_device(name, wanted.device);
    parts_ = std::make_unique<parts>(capacity_bytes, wanted);
  }

  [[nodiscard]] std::size_t capacity_bytes() const noexcept { return capacity_; }
  [[nodiscard]] std::size_t used_bytes() const noexcept { return used_; }
  /// What the pool holds of the device: live blocks and what is kept for reuse.
  [[nodiscard]] std::size_t held_bytes() const { return parts_->pool.reserved_bytes(); }

  /// Errors: cuda_error when the device fails in another way than being full.
  [[nodiscard]] std::optional<handle> try_allocate(std::size_t bytes) {
    if (bytes > capacity_ - used_) { return std::nullopt; }
    std::size_t const size = rounded(bytes);
    if (size > capacity_ - used_) { return std::nullopt; }
    parts_->live.reserve(parts_->live.size() + 1);
    std::byte* const at = parts_->pool.try_allocate(lane().up(), size);
    if (at == nullptr) { return std::nullopt; }
    parts_->live.insert(at);
    used_ += size;
    return handle{at, lane().device()};
  }
  void deallocate(handle at, std::size_t bytes) noexcept {
    parts_->live.erase(at.at);
    parts_->pool.release(lane().up(), at.at);
    used_ -= rounded(bytes);
  }
  /// An address on the device.
  [[nodiscard]] std::byte* address(handle at) const noexcept { return at.at; }
  void zero(handle at, std::size_t bytes) { lane().zero(at.at, bytes); }

  [[nodiscard]] device_lane& lane() const noexcept { return parts_->lane; }
  /// "CUDA device 0".
  [[nodiscard]] std::string mode() const {
    return "CUDA device " + std::to_string(lane().device());
  }

 private:
  struct parts {
    parts(std::size_t capacity_bytes, options const& wanted)
        : lane{wanted.device, wanted.staging}, pool{wanted.device, capacity_bytes} {}
    parts(parts const&) = delete;
    parts& operator=(parts const&) = delete;
    ~parts() {
      for (auto* const at : live) { pool.release(lane.up(), at); }
    }
    device_lane lane;
    shim::memory_pool pool;
    std::unordered_set<std::byte*> live;
  };
  [[nodiscard]] static constexpr std::size_t rounded(std::size_t bytes) noexcept {
    return round_up(std::max<std::size_t>(bytes, 1), traits.granularity);
  }

  std::size_t capacity_;
  std::size_t used_ = 0;
  std::unique_ptr<parts> parts_;  ///< at one address even if the tier moves
};

static_assert(memory_tier<vram>);

}  // namespace terrace

#endif
