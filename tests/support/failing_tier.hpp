// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/concepts/memory_tier.hpp>
#include <terrace/core/error.hpp>

#include <cerrno>
#include <cstddef>
#include <optional>
#include <string_view>
#include <utility>

namespace terrace::test {

/// A tier whose operating system fails: after `good` allocations every further one throws io_error.
template <memory_tier Tier>
class failing_tier {
 public:
  using handle = typename Tier::handle;
  static constexpr std::string_view name = Tier::name;
  static constexpr tier_traits traits = Tier::traits;

  failing_tier(Tier tier, std::size_t good) : tier_{std::move(tier)}, good_{good} {}

  [[nodiscard]] std::size_t capacity_bytes() const noexcept { return tier_.capacity_bytes(); }
  [[nodiscard]] std::size_t used_bytes() const noexcept { return tier_.used_bytes(); }
  [[nodiscard]] std::optional<handle> try_allocate(std::size_t bytes) {
    if (good_ == 0) { throw io_error{"memory cannot be mapped", ENOMEM}; }
    --good_;
    return tier_.try_allocate(bytes);
  }
  void deallocate(handle at, std::size_t bytes) noexcept { tier_.deallocate(at, bytes); }
  [[nodiscard]] std::byte* address(handle at) noexcept
    requires host_readable_tier<Tier>
  {
    return tier_.address(at);
  }

 private:
  Tier tier_;
  std::size_t good_;
};

}  // namespace terrace::test
