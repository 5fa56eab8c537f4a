// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <terrace/chain/any_store.hpp>
#include <terrace/chain/cache_level.hpp>
#include <terrace/chain/lease.hpp>
#include <terrace/chain/residency_table.hpp>
#include <terrace/chain/store_audit.hpp>
#include <terrace/chain/tier_chain.hpp>
#include <terrace/concepts/prefetch_policy.hpp>
#include <terrace/core/block.hpp>
#include <terrace/core/error.hpp>
#include <terrace/core/ids.hpp>
#include <terrace/core/stream_ref.hpp>
#include <terrace/prefetch/none.hpp>

namespace terrace {

/// Where a block may live: `level` counts from the fastest (0); the chain's level count stands for home, which means
/// that the block is read for each use and not kept.
struct block_placement {
  block_id id{};
  std::size_t level = 0;
};

struct store_options {
  std::vector<block_placement> placements;    ///< blocks not named here may enter the fastest level
  std::uint64_t prefetch_bytes = UINT64_MAX;  ///< most bytes of unasked-for reads in flight
};

/// A chain bound to the blocks of a catalog.
///
/// Ordering: one thread at a time. The misses of a set are started together and arrive in any order.
/// Cost:     a hit is one hash lookup and one policy touch.
template <class Chain, prefetch_policy Prefetch = prefetch::none>
class store final : public any_store, private lease::source {
 public:
  static constexpr std::size_t level_count = Chain::level_count;

  /// `blocks` is borrowed and must outlive the store.
  store(Chain chain, std::span<block_info const> blocks, Prefetch prefetch = Prefetch{}, store_options options = {})
      : chain_{std::move(chain)},
        table_{blocks},
        levels_{make_levels(chain_, table_, std::make_index_sequence<level_count>{})},
        prefetch_{std::move(prefetch)},
        prefetch_bytes_{options.prefetch_bytes} {
    home_.name = std::string{Chain::home_part::tier::name};
    home_.mode = chain_.home_source().mode();
    for (auto const& placed : options.placements) {
      auto& record = table_[table_.number_of(placed.id)];
      record.transient = placed.level >= level_count;
      record.target = static_cast<std::uint8_t>(record.transient ? 0 : placed.level);
    }
  }
  store(store const&) = delete;
  store& operator=(store const&) = delete;
  ~store() override = default;

  [[nodiscard]] lease acquire(stream_ref /*on*/, std::span<block_id const> ids) override {
    std::vector<lease::member> members;
    members.reserve(ids.size());
    for (auto const id : ids) { members.push_back({.view = {}, .block = table_.number_of(id)}); }
    for (auto& one : members) {
      count_access(one.block);
      begin_lease(one.block);
    }
    for (auto const& one : members) {
      on_target(one.block, [&]<std::size_t L>() {
        if (at<L>().absent(one.block) && !fetch<L>(one.block, /*leased=*/true)) {
          refuse<L>(one.block, members);
        }
      });
    }
    for (auto& one : members) {
      one.view.info = table_[one.block].info;
      on_target(one.block, [&]<std::size_t L>() {
        one.view.address = level_of<L>().memory.address(*at<L>()[one.block].at);
      });
    }
    run_suggestions();
    return lease{*this, std::move(members)};
  }

  std::size_t prefetch(std::span<block_id const> ids) override {
    std::size_t started = 0;
    for (auto const id : ids) {
      auto const number = table_.find(id);
      if (!number || table_[*number].transient) { continue; }
      on_target(*number, [&]<std::size_t L>() {
        auto& here = at<L>();
        bool const within = in_flight_bytes<L>() + table_[*number].info->bytes <= prefetch_bytes_;
        if (here.absent(*number) && within && fetch<L>(*number, /*leased=*/false)) {
          here[*number].unasked = true;
          ++here.counters().prefetched;
          ++started;
        }
      });
    }
    return started;
  }

  void hint(lookahead const& ahead) override { prefetch_.hint(ahead); }

  [[nodiscard]] std::byte* reserve_state(block_id id, std::size_t bytes) override {
    auto const room = room_in<0>(bytes, /*expert=*/false, /*leased=*/false, /*may_wait=*/true);
    if (!room) {
      throw out_of_capacity{"the " + std::string{fastest::name} + " level of " + format_size(at<0>().capacity_bytes()) +
                                " has no room for the " + to_string(id) + " (" + format_size(bytes) +
                                " of sequence state); give it more or shorten the context",
                            at<0>().immovable_bytes() + bytes,
                            at<0>().capacity_bytes()};
    }
    at<0>().add_state(bytes);
    state_.push_back({id, *room, bytes});
    auto* address = level_of<0>().memory.address(*room);
    std::memset(address, 0, bytes);
    return address;
  }
  void release_state(block_id id) noexcept override {
    auto const found = std::find_if(state_.begin(), state_.end(), [&](auto const& one) { return one.id == id; });
    if (found == state_.end()) { return; }
    level_of<0>().memory.deallocate(found->at, found->bytes);
    at<0>().remove_state(found->bytes);
    state_.erase(found);
  }

  void tick() noexcept override {
    for_each_level([&]<std::size_t L>() { level_of<L>().evict.tick(); });
  }

  [[nodiscard]] std::size_t room_for(block_id id) const override {
    auto const number = table_.number_of(id);
    std::size_t result = 0;
    on_target(number, [&]<std::size_t L>() {
      auto const& here = at<L>();
      std::uint64_t const bytes = here.counted_bytes(table_[number].info->bytes);
      std::uint64_t const spare = here.capacity_bytes() - std::min<std::uint64_t>(here.capacity_bytes(), here.immovable_bytes());
      result = bytes == 0 ? unlimited : spare / bytes;
      if (kind_of(id) == block_kind::expert) {
        std::size_t const slots = here.level().expert_slots;
        result = std::min(result, slots - std::min(slots, here.leased_experts()));
      }
    });
    return result;
  }

  [[nodiscard]] std::vector<observe::tier_counters> counters() const override {
    std::vector<observe::tier_counters> all;
    for_each_level([&]<std::size_t L>() { all.push_back(at<L>().report()); });
    all.push_back(home_);
    return all;
  }

  /// Recounts everything the store and its tiers hold. Linear in the number of blocks; settles nothing.
  [[nodiscard]] store_audit audit() const {
    store_audit result;
    for_each_level([&]<std::size_t L>() {
      store_audit::level_bytes bytes{.tier_used = at<L>().used_bytes(), .blocks = 0, .state = at<L>().state_bytes()};
      for (std::size_t block = 0; block < table_.size(); ++block) {
        if (!at<L>().absent(block)) { bytes.blocks += at<L>()[block].bytes; }
      }
      result.levels.push_back(bytes);
    });
    for (std::size_t block = 0; block < table_.size(); ++block) { audit_block(block, result); }
    return result;
  }

  [[nodiscard]] Chain const& chain() const noexcept { return chain_; }

 private:
  using levels_tuple = typename Chain::levels_tuple;
  template <std::size_t L>
  using level_type = std::tuple_element_t<L, levels_tuple>;
  template <std::size_t L>
  using tier_type = typename level_type<L>::tier;
  using fastest = tier_type<0>;
  struct state_block {
    block_id id;
    typename fastest::handle at;
    std::size_t bytes;
  };

  template <class... Levels>
  static auto books_of(std::tuple<Levels...>&) -> std::tuple<cache_level<Levels>...>;
  using books_tuple = decltype(books_of(std::declval<levels_tuple&>()));
  template <std::size_t... L>
  static books_tuple make_levels(Chain& chain, residency_table const& table, std::index_sequence<L...>) {
    return books_tuple{cache_level<level_type<L>>{std::get<L>(chain.levels()), table, L}...};
  }

  template <std::size_t L>
  [[nodiscard]] auto& at() noexcept {
    return std::get<L>(levels_);
  }
  template <std::size_t L>
  [[nodiscard]] auto const& at() const noexcept {
    return std::get<L>(levels_);
  }
  template <std::size_t L>
  [[nodiscard]] auto& level_of() noexcept {
    return at<L>().level();
  }
  template <class F>
  static void for_each_level(F&& f) {
    [&]<std::size_t... L>(std::index_sequence<L...>) { (f.template operator()<L>(), ...); }
    (std::make_index_sequence<level_count>{});
  }
  /// Calls f<L>() for the level the block is read from.
  template <class F>
  void on_target(std::size_t block, F&& f) const {
    for_each_level([&]<std::size_t L>() {
      if (table_[block].target == L) { f.template operator()<L>(); }
    });
  }

  // Leases -----------------------------------------------------------------------------------------------------------

  void begin_lease(std::size_t block) noexcept {
    if (table_[block].leases++ == 0) {
      on_target(block, [&]<std::size_t L>() { at<L>().leased(block, true); });
    }
  }
  void release_block(std::size_t block) noexcept override {
    if (--table_[block].leases > 0) { return; }
    on_target(block, [&]<std::size_t L>() {
      at<L>().leased(block, false);
      if (table_[block].transient && at<L>().may_leave(block)) { at<L>().drop(block); }
    });
  }
  bool block_arrived(std::size_t block) noexcept override {
    bool done = true;
    on_target(block, [&]<std::size_t L>() {
      if (at<L>().arriving(block)) { done = at<L>()[block].arrival.ready(); }
    });
    return done;
  }
  void wait_for_block(std::size_t block) override {
    on_target(block, [&]<std::size_t L>() {
      if (at<L>().arriving(block)) { settle<L>(block); }
      if (at<L>().absent(block)) {
        throw io_error{"the bytes of " + to_string(table_[block].info->id) +
                           " could not be read; an earlier error says why",
                       0};
      }
    });
  }

  void count_access(std::size_t block) {
    auto const id = table_[block].info->id;
    bool found = false;
    for_each_level([&]<std::size_t L>() {
      if (found || L < table_[block].target) { return; }
      auto& here = at<L>();
      found = !here.absent(block);
      ++(found ? here.counters().hits : here.counters().misses);
      if (!found) { return; }
      level_of<L>().evict.touch(id);
      if (here[block].unasked) {
        here[block].unasked = false;
        ++here.counters().prefetch_used;
      }
    });
    if (!found) { ++home_.hits; }
    bool on_time = false;
    on_target(block, [&]<std::size_t L>() { on_time = !at<L>().absent(block); });
    prefetch_.observe({.block = id, .hit = on_time});
  }

  // Moving blocks ----------------------------------------------------------------------------------------------------

  /// Starts bringing an absent block into level L; false if no room can be made.
  template <std::size_t L>
  bool fetch(std::size_t block, bool leased) {
    auto const& info = *table_[block].info;
    int const origin = find_source<L>(block);
    hold_source(block, origin, true);
    auto const room = room_in<L>(info.bytes, kind_of(info.id) == block_kind::expert, leased, /*may_wait=*/leased);
    if (!room) {
      hold_source(block, origin, false);
      return false;
    }
    try {
      at<L>().begin_arrival(block, *room, start_copy<L>(block, origin, *room), origin);
    } catch (...) {
      level_of<L>().memory.deallocate(*room, info.bytes);
      hold_source(block, origin, false);
      throw;
    }
    return true;
  }

  /// The fastest other level that holds the block and has a copy path to L, or from_home.
  template <std::size_t L>
  [[nodiscard]] int find_source(std::size_t block) const noexcept {
    int origin = cache_level<level_type<L>>::from_home;
    for_each_level([&]<std::size_t From>() {
      if constexpr (From != L && copyable_to<tier_type<From>, tier_type<L>>) {
        if (origin < 0 && at<From>().resident(block)) { origin = static_cast<int>(From); }
      }
    });
    return origin;
  }
  /// A copy that is being read may not leave its level.
  void hold_source(std::size_t block, int origin, bool hold) noexcept {
    for_each_level([&]<std::size_t From>() {
      if (static_cast<int>(From) == origin) { at<From>()[block].readers += hold ? 1 : -1U; }
    });
  }

  template <std::size_t L>
  [[nodiscard]] ticket start_copy(std::size_t block, int origin, typename tier_type<L>::handle to) {
    auto const& info = *table_[block].info;
    if (origin < 0) {
      home_.bytes_out += info.file_bytes();
      return copy_path<typename Chain::home_part::tier, tier_type<L>>::start(
          chain_.home_source(), std::span<block_extent const>{info.extents}, level_of<L>().memory, to);
    }
    ticket transfer;
    for_each_level([&]<std::size_t From>() {
      if constexpr (From != L && copyable_to<tier_type<From>, tier_type<L>>) {
        if (static_cast<int>(From) != origin) { return; }
        at<From>().counters().bytes_out += info.file_bytes();
        transfer = copy_path<tier_type<From>, tier_type<L>>::start(
            level_of<From>().memory, *at<From>()[block].at, level_of<L>().memory, to, info.bytes);
      }
    });
    return transfer;
  }

  /// Ends an arrival: waits, lets the source go, and fills or empties the levels below as their kind asks.
  template <std::size_t L>
  void settle(std::size_t block) {
    int const origin = at<L>()[block].source;
    auto const started = std::chrono::steady_clock::now();
    auto const done = [&] {
      auto const waited = std::chrono::steady_clock::now() - started;
      counters_of(origin).stall_ns +=
          static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(waited).count());
      hold_source(block, origin, false);
    };
    try {
      at<L>().finish_arrival(block);
    } catch (...) {
      done();
      throw;
    }
    done();
    for_each_level([&]<std::size_t Lower>() {
      if constexpr (Lower > L) {
        if constexpr (level_type<Lower>::is_exclusive) {
          if (static_cast<int>(Lower) == origin && at<Lower>().may_leave(block)) { at<Lower>().drop(block); }
        } else if constexpr (copyable_to<tier_type<L>, tier_type<Lower>>) {
          if (at<Lower>().absent(block)) { copy_down<L, Lower>(block); }
        }
      }
    });
    if (table_[block].transient && at<L>().may_leave(block)) { at<L>().drop(block); }
  }

  [[nodiscard]] observe::tier_counters& counters_of(int origin) noexcept {
    observe::tier_counters* result = &home_;
    for_each_level([&]<std::size_t L>() {
      if (static_cast<int>(L) == origin) { result = &at<L>().counters(); }
    });
    return *result;
  }

  /// Copies a block resident at `Upper` into `Lower` if its admission policy and its room allow.
  template <std::size_t Upper, std::size_t Lower>
  void copy_down(std::size_t block) {
    auto const& info = *table_[block].info;
    if (table_[block].transient || !level_of<Lower>().admit.admit(info.id)) { return; }
    hold_source(block, static_cast<int>(Upper), true);
    auto const room = room_in<Lower>(info.bytes, kind_of(info.id) == block_kind::expert, false, /*may_wait=*/false);
    if (room) {
      at<Lower>().begin_arrival(
          block, *room, start_copy<Lower>(block, static_cast<int>(Upper), *room), static_cast<int>(Upper));
      at<Lower>().finish_arrival(block);
    }
    hold_source(block, static_cast<int>(Upper), false);
  }

  template <std::size_t L>
  [[nodiscard]] std::optional<typename tier_type<L>::handle> room_in(std::size_t bytes,
                                                                     bool expert,
                                                                     bool leased,
                                                                     bool may_wait) {
    for (;;) {
      auto room = at<L>().make_room(bytes, expert, leased, [&](std::size_t victim) { evict<L>(victim); });
      if (room || !may_wait || !settle_idle_arrival<L>()) { return room; }
    }
  }
  /// Waits for the oldest read nobody leases, so that it can be evicted; false if there is none.
  template <std::size_t L>
  bool settle_idle_arrival() {
    for (auto const block : at<L>().arrivals()) {
      if (table_[block].leases > 0 && table_[block].target == L) { continue; }
      try {
        settle<L>(block);
      } catch (io_error const&) {  // nobody asked for it yet; whoever does will read it again and learn why
      }
      return true;
    }
    return false;
  }

  template <std::size_t L>
  void evict(std::size_t block) {
    if constexpr (L + 1 < level_count) {
      if constexpr (level_type<L + 1>::is_exclusive) {
        if (at<L + 1>().absent(block)) { copy_down<L, L + 1>(block); }
      }
    }
    ++at<L>().counters().evictions;
    at<L>().drop(block);
  }

  template <std::size_t L>
  [[nodiscard]] std::uint64_t in_flight_bytes() const noexcept {
    std::uint64_t sum = 0;
    for (auto const block : at<L>().arrivals()) { sum += at<L>()[block].unasked ? at<L>()[block].bytes : 0; }
    return sum;
  }
  void run_suggestions() {
    block_id ids[32];
    for (;;) {
      auto const count = prefetch_.suggest(ids);
      if (count == 0 || prefetch({ids, count}) == 0) { return; }
    }
  }

  /// Ends the leases of a set that cannot be held and says what it would take.
  template <std::size_t L>
  [[noreturn]] void refuse(std::size_t block, std::vector<lease::member> const& members) {
    std::uint64_t const needed = at<L>().immovable_bytes();
    auto const slots = level_of<L>().expert_slots;
    auto const experts = at<L>().leased_experts();
    for (auto const& one : members) { release_block(one.block); }
    std::string const level = "the " + std::string{tier_type<L>::name} + " level of " +
                              format_size(at<L>().capacity_bytes());
    std::string const set = to_string(table_[block].info->id) + " and the " + std::to_string(members.size() - 1) +
                            " blocks leased with it";
    if (experts > slots) {
      throw out_of_capacity{level + " has " + std::to_string(slots) + " expert slots, too few for " + set +
                                "; it needs " + std::to_string(experts),
                            experts,
                            slots};
    }
    throw out_of_capacity{level + " cannot hold " + set + "; with leases and sequence state that makes " +
                              std::to_string(needed) + " bytes; give the level at least that",
                          needed,
                          at<L>().capacity_bytes()};
  }

  void audit_block(std::size_t block, store_audit& result) const {
    std::uint64_t first = 0;
    bool arriving = false;
    bool above = false;
    bool doubled = false;
    for_each_level([&]<std::size_t L>() {
      auto const& here = at<L>();
      bool const present = !here.absent(block);
      arriving |= here.arriving(block);
      if (present) { (first == 0 ? first : result.copies) += here[block].bytes; }
      doubled |= level_type<L>::is_exclusive && present && above;
      above = present;
    });
    result.distinct += first;
    result.broken_exclusions += doubled && !arriving ? 1 : 0;
  }

  Chain chain_;
  residency_table table_;
  books_tuple levels_;
  std::vector<state_block> state_;
  observe::tier_counters home_;
  Prefetch prefetch_;
  std::uint64_t prefetch_bytes_;
};

}  // namespace terrace
