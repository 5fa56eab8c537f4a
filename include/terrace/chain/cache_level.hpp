// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/chain/residency_table.hpp>
#include <terrace/chain/tier_chain.hpp>
#include <terrace/core/ids.hpp>
#include <terrace/core/ticket.hpp>
#include <terrace/core/units.hpp>
#include <terrace/observe/counters.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace terrace {

/// Books of one level of a store: which blocks are here or arriving, what may leave, what was
/// counted. Blocks are named by their number in the residency table.
template <class Level>
class cache_level {
 public:
  using tier = typename Level::tier;
  using handle = typename tier::handle;
  static constexpr int from_home = -1;

  /// Where one block is at this level.
  struct residence {
    enum class state : std::uint8_t { absent, arriving, resident };
    std::optional<handle> at;
    ticket arrival;
    std::size_t bytes = 0;      ///< what the tier counts for it
    int source = from_home;     ///< level it is being copied from
    std::uint32_t readers = 0;  ///< copies to other levels that read this one
    state now = state::absent;
    bool unasked = false;  ///< prefetched and not asked for yet
  };

  cache_level(Level& level, residency_table const& table, std::size_t index)
      : level_{&level}, table_{&table}, index_{index}, residences_(table.size()) {
    counters_.name = std::string{tier::name};
    if constexpr (requires { level.memory.mode(); }) { counters_.mode = level.memory.mode(); }
  }

  [[nodiscard]] Level& level() const noexcept { return *level_; }
  [[nodiscard]] observe::tier_counters& counters() noexcept { return counters_; }
  [[nodiscard]] residence& operator[](std::size_t block) noexcept { return residences_[block]; }
  [[nodiscard]] residence const& operator[](std::size_t block) const noexcept {
    return residences_[block];
  }
  [[nodiscard]] bool absent(std::size_t block) const noexcept {
    return residences_[block].now == residence::state::absent;
  }
  [[nodiscard]] bool resident(std::size_t block) const noexcept {
    return residences_[block].now == residence::state::resident;
  }
  [[nodiscard]] bool arriving(std::size_t block) const noexcept {
    return residences_[block].now == residence::state::arriving;
  }
  [[nodiscard]] bool may_leave(std::size_t block) const noexcept {
    auto const& record = (*table_)[block];
    bool const leased_here = record.leases > 0 && record.target == index_;
    return resident(block) && residences_[block].readers == 0 && !leased_here;
  }
  [[nodiscard]] std::size_t capacity_bytes() const noexcept {
    return level_->memory.capacity_bytes();
  }
  [[nodiscard]] std::size_t used_bytes() const noexcept { return level_->memory.used_bytes(); }
  [[nodiscard]] std::uint64_t state_bytes() const noexcept { return state_bytes_; }
  /// Bytes that eviction cannot free: leased blocks and sequence state.
  [[nodiscard]] std::uint64_t immovable_bytes() const noexcept {
    return leased_bytes_ + state_bytes_;
  }
  [[nodiscard]] std::size_t leased_experts() const noexcept { return leased_experts_; }
  /// What the tier will count for an allocation.
  [[nodiscard]] std::size_t counted_bytes(std::size_t bytes) const noexcept {
    if constexpr (requires { level_->memory.rounded_bytes(bytes); }) {
      return level_->memory.rounded_bytes(bytes);
    } else {
      return round_up(bytes, tier::traits.granularity);
    }
  }

  /// The first lease on a block here began, or the last one ended.
  void leased(std::size_t block, bool began) noexcept {
    auto const& info = *(*table_)[block].info;
    std::size_t const bytes = counted_bytes(info.bytes);
    leased_bytes_ += began ? bytes : -bytes;
    if (kind_of(info.id) == block_kind::expert) { leased_experts_ += began ? 1 : -std::size_t{1}; }
  }

  /// Memory for `bytes`, calling `evict_one(block)` (which must make the block absent here) until
  /// there is room. `leased` says that the caller's lease on the block is already counted. Nothing
  /// when leases and sequence state leave too little; a request that cannot succeed evicts nothing.
  template <class EvictOne>
  [[nodiscard]] std::optional<handle> make_room(std::size_t bytes,
                                                bool expert,
                                                bool leased,
                                                EvictOne&& evict_one) {
    std::uint64_t const own = leased ? 0 : counted_bytes(bytes);
    if (immovable_bytes() + own > capacity_bytes()) { return std::nullopt; }
    for (;;) {
      bool const slots_full = expert && experts_ >= level_->expert_slots;
      if (!slots_full) {
        if (auto at = level_->memory.try_allocate(bytes)) {
          note_peak();
          return at;
        }
      }
      auto const victim = level_->evict.victim([&](block_id id) {
        auto const number = table_->find(id);
        return number && may_leave(*number) && (!slots_full || kind_of(id) == block_kind::expert);
      });
      if (!victim) { return std::nullopt; }
      evict_one(table_->number_of(*victim));
    }
  }

  /// Takes over memory that `transfer` is filling. The block may not leave until `settle`.
  void begin_arrival(std::size_t block, handle at, ticket transfer, int source) {
    auto const& info = *(*table_)[block].info;
    auto& here = residences_[block];
    here.at = at;
    here.bytes = counted_bytes(info.bytes);
    here.arrival = std::move(transfer);
    here.source = source;
    here.now = residence::state::arriving;
    blocks_bytes_ += here.bytes;
    if (kind_of(info.id) == block_kind::expert) { ++experts_; }
    arrivals_.push_back(static_cast<std::uint32_t>(block));
    level_->evict.admit(info.id, here.bytes);
  }
  /// Waits for the bytes; rethrows what went wrong, after giving the memory back.
  void finish_arrival(std::size_t block) {
    auto& here = residences_[block];
    std::erase(arrivals_, static_cast<std::uint32_t>(block));
    try {
      here.arrival.wait();
    } catch (...) {
      drop(block);
      throw;
    }
    here.now = residence::state::resident;
    counters_.bytes_in += (*table_)[block].info->file_bytes();
    if (watched(block)) { announce(block); }
  }
  /// Tells the watcher of every block that is read from here and has arrived.
  void announce_all() {
    for (std::size_t block = 0; block < residences_.size(); ++block) {
      if (resident(block) && watched(block)) { announce(block); }
    }
  }
  /// Blocks on their way here, oldest first.
  [[nodiscard]] std::vector<std::uint32_t> const& arrivals() const noexcept { return arrivals_; }

  void drop(std::size_t block) noexcept {
    auto& here = residences_[block];
    auto const& info = *(*table_)[block].info;
    if (resident(block) && watched(block)) { table_->watcher()->leaving(info.id); }
    level_->memory.deallocate(*here.at, info.bytes);
    level_->evict.forget(info.id);
    blocks_bytes_ -= here.bytes;
    if (kind_of(info.id) == block_kind::expert) { --experts_; }
    std::erase(arrivals_, static_cast<std::uint32_t>(block));
    auto const readers = here.readers;
    here = residence{};
    here.readers = readers;
  }

  void add_state(std::size_t bytes) noexcept { state_bytes_ += counted_bytes(bytes); }
  void remove_state(std::size_t bytes) noexcept { state_bytes_ -= counted_bytes(bytes); }

  [[nodiscard]] observe::tier_counters report() const {
    auto result = counters_;
    result.capacity_bytes = capacity_bytes();
    result.used_bytes = used_bytes();
    return result;
  }
  [[nodiscard]] std::uint64_t blocks_bytes() const noexcept { return blocks_bytes_; }

 private:
  [[nodiscard]] bool watched(std::size_t block) const noexcept {
    return table_->watcher() != nullptr && (*table_)[block].target == index_;
  }
  void announce(std::size_t block) {
    if constexpr (requires { level_->memory.address(*residences_[block].at); }) {
      table_->watcher()->arrived(*(*table_)[block].info,
                                 level_->memory.address(*residences_[block].at));
    }
  }
  void note_peak() noexcept {
    counters_.peak_bytes = std::max<std::uint64_t>(counters_.peak_bytes, used_bytes());
  }

  Level* level_;
  residency_table const* table_;
  std::size_t index_;
  std::vector<residence> residences_;
  std::vector<std::uint32_t> arrivals_;
  observe::tier_counters counters_;
  std::uint64_t leased_bytes_ = 0;
  std::uint64_t state_bytes_ = 0;
  std::uint64_t blocks_bytes_ = 0;
  std::size_t leased_experts_ = 0;
  std::size_t experts_ = 0;
};

}  // namespace terrace
