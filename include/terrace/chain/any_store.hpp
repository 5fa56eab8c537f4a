// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/chain/lease.hpp>
#include <terrace/chain/residency_watcher.hpp>
#include <terrace/concepts/memory_tier.hpp>
#include <terrace/concepts/prefetch_policy.hpp>
#include <terrace/core/ids.hpp>
#include <terrace/core/stream_ref.hpp>
#include <terrace/observe/counters.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace terrace {

/// What pipelines see of a store: one virtual call per set of blocks, none per element.
///
/// Used by one thread at a time. Leases and state addresses must not outlive the store.
class any_store {
 public:
  virtual ~any_store() = default;

  /// Leases the set for work on `on`, starting all its misses together before returning.
  /// Errors: contract_error for an unknown id; out_of_capacity when the set cannot be held even after evicting
  ///         everything that may leave (nothing stays leased then).
  [[nodiscard]] virtual lease acquire(stream_ref on, std::span<block_id const> ids) = 0;

  /// Starts reading blocks that will be asked for soon, as far as room can be made without waiting.
  /// Never throws for want of room. Returns how many reads were started.
  virtual std::size_t prefetch(std::span<block_id const> ids) = 0;

  /// Passes a later router's scores to the prefetch policy.
  virtual void hint(lookahead const& ahead) = 0;

  /// Reserves zeroed sequence-state memory in the fastest level, evicting weights for it; it stays
  /// until released.
  [[nodiscard]] virtual std::byte* reserve_state(block_id id, std::size_t bytes) = 0;
  virtual void release_state(block_id id) noexcept = 0;

  /// What may be done with the memory that the block is read from.
  /// Errors: contract_error for an unknown id.
  [[nodiscard]] virtual tier_traits traits_of(block_id id) const = 0;

  /// From now on `watcher` is told of blocks that come and go, at once of those that are here; null
  /// ends it. Borrowed.
  virtual void watch(residency_watcher* watcher) = 0;

  /// One token went by: ages the policies that count in tokens.
  virtual void tick() noexcept = 0;

  /// Largest number of blocks of the id's size that could be leased at once beside what is leased
  /// now.
  [[nodiscard]] virtual std::size_t room_for(block_id id) const = 0;

  /// Per level from fast to home.
  [[nodiscard]] virtual std::vector<observe::tier_counters> counters() const = 0;

 protected:
  any_store() = default;
  any_store(any_store const&) = default;
  any_store& operator=(any_store const&) = default;
};

}  // namespace terrace
