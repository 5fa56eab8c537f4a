// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <optional>
#include <string_view>

namespace terrace {

/// What a kernel or copy path may do with a tier's memory.
struct tier_traits {
  bool host_readable = false;
  bool device_readable = false;
  bool device_local = false;  ///< in a device's own memory: kernels read it at full speed
  bool persistent = false;
  std::size_t granularity =
      1;  ///< bytes; every allocation is rounded up to a multiple and starts on one
};

/// A level of memory with a capacity. Allocation never exceeds `capacity_bytes()`, counting memory
/// the tier keeps for reuse: at no instant does the tier hold more of the machine than its
/// capacity.
///
/// `try_allocate` answers nothing when there is no room (the store then evicts and asks again); it
/// throws only when the operating system fails. `deallocate` gets the same byte count back.
///
/// A tier that the host may not write has `zero(handle, bytes)`, which sets bytes of a block to 0
/// before it returns; sequence state can live in such a tier only with it.
template <class T>
concept memory_tier =
    std::movable<T> && requires(T& tier, T const& view, std::size_t bytes, typename T::handle at) {
      { T::name } -> std::convertible_to<std::string_view>;
      { T::traits } -> std::convertible_to<tier_traits>;
      { view.capacity_bytes() } noexcept -> std::same_as<std::size_t>;
      {
        view.used_bytes()
      } noexcept -> std::same_as<std::size_t>;  // live allocations, rounded to the granularity
      { tier.try_allocate(bytes) } -> std::same_as<std::optional<typename T::handle>>;
      { tier.deallocate(at, bytes) } noexcept -> std::same_as<void>;
    };

/// A tier whose blocks the host reads through a plain pointer.
template <class T>
concept host_readable_tier =
    memory_tier<T> && T::traits.host_readable && requires(T& tier, typename T::handle at) {
      { tier.address(at) } noexcept -> std::same_as<std::byte*>;
    };

}  // namespace terrace
