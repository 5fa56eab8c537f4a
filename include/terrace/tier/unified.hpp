// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/tier/device_lane.hpp>

#if defined(TERRACE_HAS_CUDA)

#include <terrace/concepts/memory_tier.hpp>
#include <terrace/core/error.hpp>
#include <terrace/core/ticket.hpp>
#include <terrace/core/units.hpp>
#include <terrace/shim/cuda_memory.hpp>
#include <terrace/tier/detail/slot_cache.hpp>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace terrace {

/// Managed memory: one address for host and device, pages that move. They are advised to live on
/// the device (or on the host) and are brought there by explicit prefetches, not by faults.
///
/// Freed slots stay for the next block of their size and go only when another size needs the room:
/// `try_allocate` succeeds exactly when `used_bytes() + rounded <= capacity_bytes()`, unless the
/// system has no more. Not thread-safe.
class unified {
 public:
  struct options {
    int device = 0;
    bool on_device = true;  ///< where pages live; on the host, the device reads them over the link
    bool oversubscribe = false;  ///< more than the device has free: pages come and go by faults
    staging_options staging{};
  };
  struct handle {
    std::byte* at = nullptr;
    int device = 0;
    friend bool operator==(handle const&, handle const&) = default;
  };
  static constexpr std::string_view name = "unified";
  static constexpr tier_traits traits{
      .host_readable = true, .device_readable = true, .granularity = 4096};

  /// Errors: not_supported on a device that cannot share managed memory with the host while it computes;
  ///         out_of_capacity for more than the device has free; contract_error for a device that is
  ///         not there.
  explicit unified(std::size_t capacity_bytes) : unified{capacity_bytes, options{}} {}
  unified(std::size_t capacity_bytes, options const& wanted)
      : on_device_{wanted.on_device}, slots_{capacity_bytes} {
    tier::detail::require_device(name, wanted.device);
    check_access(wanted.device);
    if (wanted.on_device && !wanted.oversubscribe) { check_room(wanted.device, capacity_bytes); }
    lane_ = std::make_unique<device_lane>(wanted.device, wanted.staging);
  }

  [[nodiscard]] std::size_t capacity_bytes() const noexcept { return slots_.capacity_bytes(); }
  [[nodiscard]] std::size_t used_bytes() const noexcept { return slots_.used_bytes(); }
  /// Live blocks and freed slots kept for reuse. Never above the capacity.
  [[nodiscard]] std::size_t held_bytes() const noexcept { return slots_.held_bytes(); }

  /// Errors: cuda_error when the device fails in another way than memory being short.
  [[nodiscard]] std::optional<handle> try_allocate(std::size_t bytes) {
    if (bytes > capacity_bytes()) { return std::nullopt; }
    auto const at =
        slots_.try_take(rounded(bytes), [this](std::size_t size) { return make_slot(size); });
    if (!at) { return std::nullopt; }
    return handle{*at, lane_->device()};
  }
  void deallocate(handle at, std::size_t bytes) noexcept {
    slots_.give_back(at.at, rounded(bytes));
  }
  /// For the host and the device.
  [[nodiscard]] std::byte* address(handle at) const noexcept { return at.at; }
  /// On the device, so that no page moves to the host for it.
  void zero(handle at, std::size_t bytes) { lane_->zero(at.at, bytes); }

  /// Brings the pages of a block to where they are advised to live, in the order of the lane's `up`
  /// stream.
  void settle_pages(handle at, std::size_t bytes) const {
    shim::prefetch(lane_->up(), {at.at, rounded(bytes)}, home());
  }

  [[nodiscard]] device_lane& lane() const noexcept { return *lane_; }
  /// "managed, on CUDA device 0".
  [[nodiscard]] std::string mode() const {
    std::string const device = "CUDA device " + std::to_string(lane_->device());
    return on_device_ ? "managed, on " + device : "managed, on the host, mapped for " + device;
  }

 private:
  [[nodiscard]] static constexpr std::size_t rounded(std::size_t bytes) noexcept {
    return round_up(std::max<std::size_t>(bytes, 1), traits.granularity);
  }
  static void check_access(int device) {
    auto const facts = shim::query_device(device);
    if (facts.concurrent_managed_access) { return; }
    throw not_supported{
        "unified: CUDA device " + std::to_string(device) + " (" + facts.name +
        ") cannot share managed memory with the host while it computes; use a chain "
        "over vram or pinned memory"};
  }
  static void check_room(int device, std::size_t capacity_bytes) {
    auto const free = shim::query_device_memory(device).free_bytes;
    if (capacity_bytes <= free) { return; }
    throw out_of_capacity{"unified: " + std::to_string(capacity_bytes) + " bytes (" +
                              format_size(capacity_bytes) + ") are more than the " +
                              format_size(free) + " that CUDA device " + std::to_string(device) +
                              " has free; pages would come and go by faults, so give it less",
                          capacity_bytes,
                          free};
  }
  [[nodiscard]] shim::memory_place home() const noexcept {
    return on_device_ ? shim::memory_place::device(lane_->device()) : shim::memory_place::host();
  }
  [[nodiscard]] std::optional<shim::managed_buffer> make_slot(std::size_t size) const {
    auto slot = shim::try_make_managed(lane_->device(), size);
    if (!slot) { return slot; }
    shim::prefer(slot->bytes(), home());
    if (!on_device_) { shim::map_for(slot->bytes(), shim::memory_place::device(lane_->device())); }
    return slot;
  }

  bool on_device_;
  std::unique_ptr<device_lane> lane_;
  tier::detail::slot_cache<shim::managed_buffer> slots_;
};

static_assert(host_readable_tier<unified>);

}  // namespace terrace

#endif
