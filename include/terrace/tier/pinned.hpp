// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/tier/device_lane.hpp>

#if defined(TERRACE_HAS_CUDA)

#include <terrace/concepts/memory_tier.hpp>
#include <terrace/core/units.hpp>
#include <terrace/shim/cuda_memory.hpp>
#include <terrace/tier/detail/slot_cache.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace terrace {

/// Main memory that is pinned and mapped for devices: the host reads it, kernels read it in place
/// over the link, and copy engines take from it at full speed.
///
/// Pinning is dear, so it is paid once per slot: freed slots stay pinned for the next block of
/// their size, and go only when another size needs the room. `try_allocate` succeeds exactly when
/// `used_bytes() + rounded <= capacity_bytes()`, unless the system lets no more be pinned. Not
/// thread-safe.
class pinned {
 public:
  struct options {
    int device = 0;  ///< whose context takes the memory; every device may read it
  };
  struct handle {
    std::byte* at = nullptr;
    friend bool operator==(handle const&, handle const&) = default;
  };
  static constexpr std::string_view name = "pinned";
  static constexpr tier_traits traits{
      .host_readable = true, .device_readable = true, .granularity = 4096};

  /// Errors: contract_error for a device that is not there.
  explicit pinned(std::size_t capacity_bytes) : pinned{capacity_bytes, options{}} {}
  pinned(std::size_t capacity_bytes, options const& wanted)
      : device_{wanted.device}, slots_{capacity_bytes} {
    tier::detail::require_device(name, device_);
  }

  [[nodiscard]] std::size_t capacity_bytes() const noexcept { return slots_.capacity_bytes(); }
  [[nodiscard]] std::size_t used_bytes() const noexcept { return slots_.used_bytes(); }
  /// What is pinned: live blocks and freed slots kept for reuse. Never above the capacity.
  [[nodiscard]] std::size_t held_bytes() const noexcept { return slots_.held_bytes(); }

  /// Errors: cuda_error when the device fails in another way than memory being short.
  [[nodiscard]] std::optional<handle> try_allocate(std::size_t bytes) {
    if (bytes > capacity_bytes()) { return std::nullopt; }
    auto const at = slots_.try_take(
        rounded(bytes), [this](std::size_t size) { return shim::try_make_pinned(device_, size); });
    if (!at) { return std::nullopt; }
    return handle{*at};
  }
  void deallocate(handle at, std::size_t bytes) noexcept {
    slots_.give_back(at.at, rounded(bytes));
  }
  /// For the host and for every device.
  [[nodiscard]] std::byte* address(handle at) const noexcept { return at.at; }

  [[nodiscard]] std::string mode() const { return "pinned, mapped for devices"; }

 private:
  [[nodiscard]] static constexpr std::size_t rounded(std::size_t bytes) noexcept {
    return round_up(std::max<std::size_t>(bytes, 1), traits.granularity);
  }

  int device_;
  tier::detail::slot_cache<shim::pinned_buffer> slots_;
};

static_assert(host_readable_tier<pinned>);

}  // namespace terrace

#endif
