// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/ids.hpp>

#include <concepts>
#include <cstddef>
#include <optional>

namespace terrace {

/// Keeps the books that decide who leaves a full level. Never frees, copies, locks or reads a
/// clock; the store asks, decides and acts.
///
/// `admit(id, bytes)`  id became resident and counts as used once
/// `touch(id)`         id was used again; unknown ids are ignored
/// `forget(id)`        id is gone
/// `victim(may_leave)` names the resident block to evict next and does not remove it; never names
/// one for which
///                     may_leave(id) is false (leased, pinned or in flight); nothing if there is
///                     none
/// `tick()`            one token went by (policies that age by tokens)
template <class P>
concept eviction_policy =
    std::movable<P> && std::constructible_from<P, typename P::options> &&
    requires(P& policy, block_id id, std::size_t bytes, bool (&may_leave)(block_id)) {
      { policy.admit(id, bytes) } -> std::same_as<void>;
      { policy.touch(id) } noexcept -> std::same_as<void>;
      { policy.forget(id) } noexcept -> std::same_as<void>;
      { policy.victim(may_leave) } -> std::same_as<std::optional<block_id>>;
      { policy.tick() } noexcept -> std::same_as<void>;
    };

}  // namespace terrace
