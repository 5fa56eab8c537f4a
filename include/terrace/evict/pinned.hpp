// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/concepts/eviction_policy.hpp>
#include <terrace/core/ids.hpp>

#include <cstddef>
#include <optional>

namespace terrace::evict {

/// Never evicts: who came first stays. For levels filled once, and as the floor any other policy
/// must beat.
class pinned {
 public:
  struct options {};

  explicit pinned(options) noexcept {}

  void admit(block_id, std::size_t) noexcept {}
  void touch(block_id) noexcept {}
  void forget(block_id) noexcept {}
  template <class MayLeave>
  [[nodiscard]] std::optional<block_id> victim(MayLeave&&) noexcept {
    return std::nullopt;
  }
  void tick() noexcept {}
};

static_assert(eviction_policy<pinned>);

}  // namespace terrace::evict
