// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/chain/cache_level.hpp>
#include <terrace/chain/residency_table.hpp>
#include <terrace/chain/store_audit.hpp>
#include <terrace/chain/tier_chain.hpp>
#include <terrace/concepts/copy_path.hpp>
#include <terrace/core/block.hpp>
#include <terrace/core/error.hpp>
#include <terrace/core/ids.hpp>
#include <terrace/core/ticket.hpp>
#include <terrace/observe/counters.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <utility>

namespace terrace {

/// The levels of one chain and how blocks move between them: fetched, settled, evicted, demoted.
///
/// Knows leases only as a reason not to move a block; who asks for blocks, and when, is the store's
/// business. Blocks are named by their number in the residency table.
template <class Chain>
class level_stack {
 public:
  static constexpr std::size_t level_count = Chain::level_count;
  using levels_tuple = typename Chain::levels_tuple;
  template <std::size_t L>
  using level_type = std::tuple_element_t<L, levels_tuple>;
  template <std::size_t L>
  using tier_type = typename level_type<L>::tier;

  level_stack(Chain chain, std::span<block_info const> blocks)
      : chain_{std::move(chain)},
        table_{blocks},
        books_{make_books(std::make_index_sequence<level_count>{})} {
    home_.name = std::string{Chain::home_part::tier::name};
    home_.mode = chain_.home_source().mode();
  }
  level_stack(level_stack const&) = delete;
  level_stack& operator=(level_stack const&) = delete;

  [[nodiscard]] Chain const& chain() const noexcept { return chain_; }
  [[nodiscard]] residency_table& table() noexcept { return table_; }
  [[nodiscard]] residency_table const& table() const noexcept { return table_; }
  [[nodiscard]] observe::tier_counters& home() noexcept { return home_; }
  [[nodiscard]] observe::tier_counters const& home() const noexcept { return home_; }

  /// Books of level L.
  template <std::size_t L>
  [[nodiscard]] auto& at() noexcept {
    return std::get<L>(books_);
  }
  template <std::size_t L>
  [[nodiscard]] auto const& at() const noexcept {
    return std::get<L>(books_);
  }
  /// Calls f<L>() for every level, fastest first.
  template <class F>
  static void for_each(F&& f) {
    [&]<std::size_t... L>(std::index_sequence<L...>) {
      (f.template operator()<L>(), ...);
    }(std::make_index_sequence<level_count>{});
  }
  /// Calls f<L>() for the level the block is read from.
  template <class F>
  void on_target(std::size_t block, F&& f) const {
    for_each([&]<std::size_t L>() {
      if (table_[block].target == L) { f.template operator()<L>(); }
    });
  }

  /// Starts bringing an absent block into level L; false if no room can be made. `leased` says that
  /// a lease on the block is counted already; then idle reads are waited for and evicted if that is
  /// what it takes.
  template <std::size_t L>
  bool fetch(std::size_t block, bool leased) {
    auto const& info = *table_[block].info;
    int const source = find_source<L>(block);
    hold_source(block, source, true);
    try {
      auto const room = make_room<L>(
          info.bytes, kind_of(info.id) == block_kind::expert, leased, /*may_wait=*/leased);
      if (!room) {
        hold_source(block, source, false);
        return false;
      }
      begin_copy<L>(block, source, *room);
    } catch (...) {
      hold_source(block, source, false);
      throw;
    }
    return true;
  }

  /// Ends an arrival: waits, lets the source go, and fills or empties the levels below as their
  /// kind asks.
  /// Errors: io_error from the copy; the block is then absent.
  template <std::size_t L>
  void settle(std::size_t block) {
    int const source = at<L>()[block].source;
    auto const started = std::chrono::steady_clock::now();
    auto const arrived = [&] {
      auto const waited = std::chrono::steady_clock::now() - started;
      auto const ns = std::chrono::duration_cast<std::chrono::nanoseconds>(waited).count();
      counters_of(source).stall_ns += static_cast<std::uint64_t>(ns);
      hold_source(block, source, false);
    };
    try {
      at<L>().finish_arrival(block);
    } catch (...) {
      arrived();
      throw;
    }
    arrived();
    for_each([&]<std::size_t Lower>() {
      if constexpr (Lower > L) { settle_below<L, Lower>(block, source); }
    });
    if (table_[block].transient && at<L>().may_leave(block)) { at<L>().drop(block); }
  }

  /// Memory in level L, evicting what may leave; nothing if that is not enough.
  template <std::size_t L>
  [[nodiscard]] std::optional<typename tier_type<L>::handle> make_room(std::size_t bytes,
                                                                       bool expert,
                                                                       bool leased,
                                                                       bool may_wait) {
    for (;;) {
      auto room =
          at<L>().make_room(bytes, expert, leased, [&](std::size_t victim) { evict<L>(victim); });
      if (room || !may_wait || !settle_idle_arrival<L>()) { return room; }
    }
  }

  /// Recounts everything; settles nothing.
  [[nodiscard]] store_audit audit() const {
    store_audit result;
    for_each([&]<std::size_t L>() {
      store_audit::level_bytes bytes{
          .tier_used = at<L>().used_bytes(), .blocks = 0, .state = at<L>().state_bytes()};
      for (std::size_t block = 0; block < table_.size(); ++block) {
        if (!at<L>().absent(block)) { bytes.blocks += at<L>()[block].bytes; }
      }
      result.levels.push_back(bytes);
    });
    for (std::size_t block = 0; block < table_.size(); ++block) { audit_block(block, result); }
    return result;
  }

 private:
  template <class... Levels>
  static auto books_for(std::tuple<Levels...>&) -> std::tuple<cache_level<Levels>...>;
  using books_tuple = decltype(books_for(std::declval<levels_tuple&>()));
  template <std::size_t... L>
  [[nodiscard]] books_tuple make_books(std::index_sequence<L...>) {
    return books_tuple{cache_level<level_type<L>>{std::get<L>(chain_.levels()), table_, L}...};
  }

  /// The fastest other level that holds the block and has a copy path to L, or from_home.
  template <std::size_t L>
  [[nodiscard]] int find_source(std::size_t block) const noexcept {
    int source = cache_level<level_type<L>>::from_home;
    for_each([&]<std::size_t From>() {
      if constexpr (From != L && copyable_to<tier_type<From>, tier_type<L>>) {
        if (source < 0 && at<From>().resident(block)) { source = static_cast<int>(From); }
      }
    });
    return source;
  }
  /// A copy that is being read may not leave its level.
  void hold_source(std::size_t block, int source, bool hold) noexcept {
    for_each([&]<std::size_t From>() {
      if (static_cast<int>(From) == source) { at<From>()[block].readers += hold ? 1 : -1U; }
    });
  }
  [[nodiscard]] observe::tier_counters& counters_of(int source) noexcept {
    observe::tier_counters* result = &home_;
    for_each([&]<std::size_t L>() {
      if (static_cast<int>(L) == source) { result = &at<L>().counters(); }
    });
    return *result;
  }

  template <std::size_t L>
  void begin_copy(std::size_t block, int source, typename tier_type<L>::handle to) {
    try {
      at<L>().begin_arrival(block, to, start_copy<L>(block, source, to), source);
    } catch (...) {
      at<L>().level().memory.deallocate(to, table_[block].info->bytes);
      throw;
    }
  }
  template <std::size_t L>
  [[nodiscard]] ticket start_copy(std::size_t block, int source, typename tier_type<L>::handle to) {
    auto const& info = *table_[block].info;
    auto& destination = at<L>().level().memory;
    counters_of(source).bytes_out += info.file_bytes();
    if (source < 0) {
      return copy_path<typename Chain::home_part::tier, tier_type<L>>::start(
          chain_.home_source(), std::span<block_extent const>{info.extents}, destination, to);
    }
    ticket transfer;
    for_each([&]<std::size_t From>() {
      if constexpr (From != L && copyable_to<tier_type<From>, tier_type<L>>) {
        if (static_cast<int>(From) != source) { return; }
        transfer = copy_path<tier_type<From>, tier_type<L>>::start(
            at<From>().level().memory, *at<From>()[block].at, destination, to, info.bytes);
      }
    });
    return transfer;
  }

  /// What a block's arrival in level L from `source` means for a level below.
  template <std::size_t L, std::size_t Lower>
  void settle_below(std::size_t block, int source) {
    if constexpr (level_type<Lower>::is_exclusive) {
      if (static_cast<int>(Lower) == source && at<Lower>().may_leave(block)) {
        at<Lower>().drop(block);
      }
    } else if constexpr (copyable_to<tier_type<L>, tier_type<Lower>>) {
      if (at<Lower>().absent(block)) { copy_down<L, Lower>(block); }
    }
  }

  /// Copies a block resident in `Upper` into `Lower` if its admission policy and its room allow.
  template <std::size_t Upper, std::size_t Lower>
  void copy_down(std::size_t block) {
    auto const& info = *table_[block].info;
    if (table_[block].transient || !at<Lower>().level().admit.admit(info.id)) { return; }
    int const source = static_cast<int>(Upper);
    hold_source(block, source, true);
    try {
      auto const room =
          make_room<Lower>(info.bytes, kind_of(info.id) == block_kind::expert, false, false);
      if (room) {
        begin_copy<Lower>(block, source, *room);
        at<Lower>().finish_arrival(block);
      }
    } catch (...) {
      hold_source(block, source, false);
      throw;
    }
    hold_source(block, source, false);
  }

  /// Waits for the oldest read nobody leases, so that it can be evicted; false if there is none.
  template <std::size_t L>
  bool settle_idle_arrival() {
    for (std::size_t const block : at<L>().arrivals()) {
      if (table_[block].leases > 0 && table_[block].target == L) { continue; }
      try {
        settle<L>(block);
      } catch (io_error const&) {  // nobody asked for it yet; whoever does will read it again and
                                   // learn why
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

  void audit_block(std::size_t block, store_audit& result) const {
    std::uint64_t first = 0;
    bool arriving = false;
    bool above = false;
    bool doubled = false;
    for_each([&]<std::size_t L>() {
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
  books_tuple books_;
  observe::tier_counters home_;
};

}  // namespace terrace
