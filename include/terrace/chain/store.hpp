// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/chain/any_store.hpp>
#include <terrace/chain/lease.hpp>
#include <terrace/chain/level_stack.hpp>
#include <terrace/chain/store_audit.hpp>
#include <terrace/concepts/memory_tier.hpp>
#include <terrace/concepts/prefetch_policy.hpp>
#include <terrace/core/block.hpp>
#include <terrace/core/error.hpp>
#include <terrace/core/ids.hpp>
#include <terrace/core/stream_ref.hpp>
#include <terrace/core/ticket.hpp>
#include <terrace/core/units.hpp>
#include <terrace/prefetch/none.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace terrace {

/// Where a block may live: `level` counts from the fastest (0); the chain's level count stands for
/// home, which means that the block is read for each use and not kept.
struct block_placement {
  block_id id{};
  std::size_t level = 0;
};

struct store_options {
  std::vector<block_placement> placements;    ///< blocks not named here may enter the fastest level
  std::uint64_t prefetch_bytes = UINT64_MAX;  ///< most bytes of unasked-for reads in flight
  /// A ticket for the work given to a stream so far; needed for leases on device streams.
  std::function<ticket(stream_ref)> work_so_far{};
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
  store(Chain chain,
        std::span<block_info const> blocks,
        Prefetch prefetch = Prefetch{},
        store_options options = {})
      : stack_{std::move(chain), blocks},
        prefetch_{std::move(prefetch)},
        prefetch_bytes_{options.prefetch_bytes},
        work_so_far_{std::move(options.work_so_far)} {
    auto& table = stack_.table();
    for (auto const& placed : options.placements) {
      auto& record = table[table.number_of(placed.id)];
      record.transient = placed.level >= level_count;
      record.target = static_cast<std::uint8_t>(record.transient ? 0 : placed.level);
    }
  }
  ~store() override {
    while (end_oldest_release()) {}
  }

  [[nodiscard]] lease acquire(stream_ref on, std::span<block_id const> ids) override {
    if (!on.is_host() && !work_so_far_) {
      throw contract_error{
          "a lease on a device stream needs store_options::work_so_far, so that the store can tell "
          "when the stream is done with it"};
    }
    end_done_releases();
    std::vector<lease::member> members;
    members.reserve(ids.size());
    for (auto const id : ids) {
      auto const number = stack_.table().number_of(id);
      members.push_back({.view = {stack_.table()[number].info, nullptr}, .block = number});
    }
    for (auto const& one : members) {
      count_access(one.block);
      begin_lease(one.block);
    }
    try {
      for (auto& one : members) {
        stack_.on_target(one.block, [&]<std::size_t L>() {
          auto& here = stack_.template at<L>();
          while (here.absent(one.block) && !stack_.template fetch<L>(one.block, /*leased=*/true)) {
            if (!end_oldest_release()) { refuse<L>(one.block, members.size()); }
          }
          one.view.address = here.level().memory.address(*here[one.block].at);
        });
      }
    } catch (...) {
      for (auto const& one : members) { release_block(one.block); }
      throw;
    }
    lease result{*this, on, std::move(members)};
    run_suggestions();
    return result;
  }

  std::size_t prefetch(std::span<block_id const> ids) override {
    end_done_releases();
    std::size_t started = 0;
    for (auto const id : ids) {
      auto const number = stack_.table().find(id);
      if (!number || stack_.table()[*number].transient) { continue; }
      stack_.on_target(*number, [&]<std::size_t L>() {
        auto& here = stack_.template at<L>();
        bool const within =
            unasked_bytes<L>() + stack_.table()[*number].info->bytes <= prefetch_bytes_;
        if (here.absent(*number) && within && stack_.template fetch<L>(*number, /*leased=*/false)) {
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
    auto& here = stack_.template at<0>();
    end_done_releases();
    auto const make_room = [&] {
      return stack_.template make_room<0>(
          bytes, /*expert=*/false, /*leased=*/false, /*may_wait=*/true);
    };
    auto room = make_room();
    while (!room && end_oldest_release()) { room = make_room(); }
    if (!room) {
      throw out_of_capacity{"the " + level_name<0>() + " has no room for the " + to_string(id) +
                                " (" + format_size(bytes) +
                                " of sequence state); give it more or shorten the context",
                            here.immovable_bytes() + bytes,
                            here.capacity_bytes()};
    }
    auto& memory = here.level().memory;
    try {
      zero(memory, *room, bytes);
      state_.push_back({id, *room, bytes});
    } catch (...) {
      memory.deallocate(*room, bytes);
      throw;
    }
    here.add_state(bytes);
    return memory.address(*room);
  }
  void release_state(block_id id) noexcept override {
    auto const found =
        std::find_if(state_.begin(), state_.end(), [&](auto const& one) { return one.id == id; });
    if (found == state_.end()) { return; }
    auto& here = stack_.template at<0>();
    here.level().memory.deallocate(found->at, found->bytes);
    here.remove_state(found->bytes);
    state_.erase(found);
  }

  [[nodiscard]] tier_traits traits_of(block_id id) const override {
    tier_traits result;
    stack_.on_target(stack_.table().number_of(id), [&]<std::size_t L>() {
      result = level_stack<Chain>::template tier_type<L>::traits;
    });
    return result;
  }

  void watch(residency_watcher* watcher) override {
    stack_.table().set_watcher(watcher);
    if (watcher == nullptr) { return; }
    stack_.for_each([&]<std::size_t L>() { stack_.template at<L>().announce_all(); });
  }

  void tick() noexcept override {
    stack_.for_each([&]<std::size_t L>() { stack_.template at<L>().level().evict.tick(); });
  }

  [[nodiscard]] std::size_t room_for(block_id id) const override {
    auto const number = stack_.table().number_of(id);
    std::size_t result = 0;
    stack_.on_target(number, [&]<std::size_t L>() {
      auto const& here = stack_.template at<L>();
      std::uint64_t const bytes = here.counted_bytes(stack_.table()[number].info->bytes);
      std::uint64_t const capacity = here.capacity_bytes();
      std::uint64_t const immovable = here.immovable_bytes() - ending_[L].bytes;
      result = (capacity - std::min(capacity, immovable)) / std::max<std::uint64_t>(bytes, 1);
      if (kind_of(id) == block_kind::expert) {
        std::size_t const slots = here.level().expert_slots;
        std::size_t const taken = here.leased_experts() - ending_[L].experts;
        result = std::min(result, slots - std::min(slots, taken));
      }
    });
    return result;
  }

  [[nodiscard]] std::vector<observe::tier_counters> counters() const override {
    std::vector<observe::tier_counters> all;
    stack_.for_each([&]<std::size_t L>() { all.push_back(stack_.template at<L>().report()); });
    all.push_back(stack_.home());
    return all;
  }

  /// Recounts everything the store and its tiers hold. Linear in the number of blocks.
  [[nodiscard]] store_audit audit() const { return stack_.audit(); }
  [[nodiscard]] Chain const& chain() const noexcept { return stack_.chain(); }

 private:
  struct state_block {
    block_id id;
    typename level_stack<Chain>::template tier_type<0>::handle at;
    std::size_t bytes;
  };

  /// Leases that end once a stream gets there.
  struct release_to_come {
    ticket done;
    std::vector<std::size_t> blocks;
  };
  /// Blocks of a level that only such leases hold.
  struct ending_blocks {
    std::uint64_t bytes = 0;
    std::size_t experts = 0;
  };

  template <class Tier>
  static void zero(Tier& memory, typename Tier::handle at, std::size_t bytes) {
    if constexpr (requires { memory.zero(at, bytes); }) {
      memory.zero(at, bytes);
    } else {
      static_assert(Tier::traits.host_readable,
                    "store: sequence state cannot live in the fastest level; its tier has no zero");
      std::memset(memory.address(at), 0, bytes);
    }
  }

  void release(stream_ref on, std::span<lease::member const> members) noexcept override {
    if (!on.is_host()) {
      try {
        release_to_come later{.done = work_so_far_(on), .blocks = {}};
        later.blocks.reserve(members.size());
        for (auto const& one : members) { later.blocks.push_back(one.block); }
        releases_.push_back(std::move(later));
        for (auto const& one : members) {
          change_lease(one.block, [](block_record& record) { ++record.ending; });
        }
        return;
      } catch (...) {  // the stream is lost, and with it whatever would have read the blocks
      }
    }
    for (auto const& one : members) { release_block(one.block); }
  }
  void end_done_releases() {
    while (!releases_.empty() && releases_.front().done.ready()) { end_oldest_release(); }
  }
  /// Waits for the oldest lease that is about to end; false if there is none.
  bool end_oldest_release() noexcept {
    if (releases_.empty()) { return false; }
    auto oldest = std::move(releases_.front());
    releases_.pop_front();
    oldest.done = ticket{};  // waits
    for (auto const block : oldest.blocks) {
      change_lease(block, [](block_record& record) { --record.ending; });
      release_block(block);
    }
    return true;
  }
  /// Applies a change to the lease counts of a block, keeping the sums of `ending_`.
  template <class Change>
  void change_lease(std::size_t block, Change&& change) noexcept {
    auto& record = stack_.table()[block];
    auto const only_ending = [&] { return record.leases > 0 && record.leases == record.ending; };
    bool const before = only_ending();
    change(record);
    bool const after = only_ending();
    if (before == after) { return; }
    stack_.on_target(block, [&]<std::size_t L>() {
      std::size_t const bytes = stack_.template at<L>().counted_bytes(record.info->bytes);
      std::size_t const expert = kind_of(record.info->id) == block_kind::expert ? 1 : 0;
      ending_[L].bytes += after ? bytes : -bytes;
      ending_[L].experts += after ? expert : -expert;
    });
  }

  void begin_lease(std::size_t block) noexcept {
    bool const first = stack_.table()[block].leases == 0;
    change_lease(block, [](block_record& record) { ++record.leases; });
    if (!first) { return; }
    stack_.on_target(block, [&]<std::size_t L>() { stack_.template at<L>().leased(block, true); });
  }
  void release_block(std::size_t block) noexcept {
    change_lease(block, [](block_record& record) { --record.leases; });
    if (stack_.table()[block].leases > 0) { return; }
    stack_.on_target(block, [&]<std::size_t L>() {
      auto& here = stack_.template at<L>();
      here.leased(block, false);
      if (stack_.table()[block].transient && here.may_leave(block)) { here.drop(block); }
    });
  }
  bool block_arrived(std::size_t block) noexcept override {
    bool done = true;
    stack_.on_target(block, [&]<std::size_t L>() {
      auto& here = stack_.template at<L>();
      if (here.arriving(block)) { done = here[block].arrival.ready(); }
    });
    return done;
  }
  void wait_for_block(std::size_t block) override {
    stack_.on_target(block, [&]<std::size_t L>() {
      auto& here = stack_.template at<L>();
      if (here.arriving(block)) { stack_.template settle<L>(block); }
      if (here.absent(block)) {
        throw io_error{"the bytes of " + to_string(stack_.table()[block].info->id) +
                           " could not be read; an earlier error says why",
                       0};
      }
    });
  }

  void count_access(std::size_t block) {
    auto const& record = stack_.table()[block];
    bool found = false;
    bool on_target = false;
    stack_.for_each([&]<std::size_t L>() {
      if (found || L < record.target) { return; }
      auto& here = stack_.template at<L>();
      found = !here.absent(block);
      on_target |= found && L == record.target;
      ++(found ? here.counters().hits : here.counters().misses);
      if (!found) { return; }
      here.level().evict.touch(record.info->id);
      if (std::exchange(here[block].unasked, false)) { ++here.counters().prefetch_used; }
    });
    if (!found) { ++stack_.home().hits; }
    prefetch_.observe({.block = record.info->id, .hit = on_target});
  }

  template <std::size_t L>
  [[nodiscard]] std::uint64_t unasked_bytes() const noexcept {
    auto const& here = stack_.template at<L>();
    std::uint64_t sum = 0;
    for (auto const block : here.arrivals()) { sum += here[block].unasked ? here[block].bytes : 0; }
    return sum;
  }
  void run_suggestions() {
    block_id ids[32];
    for (;;) {
      auto const count = prefetch_.suggest(ids);
      if (count == 0 || prefetch({ids, count}) == 0) { return; }
    }
  }

  template <std::size_t L>
  [[nodiscard]] std::string level_name() const {
    return std::string{level_stack<Chain>::template tier_type<L>::name} + " level of " +
           format_size(stack_.template at<L>().capacity_bytes());
  }
  /// Says what it would take to hold a set of `count` blocks, all of whose leases are counted.
  template <std::size_t L>
  [[noreturn]] void refuse(std::size_t block, std::size_t count) const {
    auto const& here = stack_.template at<L>();
    std::string const set = to_string(stack_.table()[block].info->id) + " and the " +
                            std::to_string(count - 1) + " blocks leased with it";
    std::size_t const slots = here.level().expert_slots;
    if (here.leased_experts() > slots) {
      throw out_of_capacity{"the " + level_name<L>() + " has " + std::to_string(slots) +
                                " expert slots, too few for " + set + "; it needs " +
                                std::to_string(here.leased_experts()),
                            here.leased_experts(),
                            slots};
    }
    throw out_of_capacity{"the " + level_name<L>() + " cannot hold " + set +
                              "; with leases and sequence state that makes " +
                              std::to_string(here.immovable_bytes()) +
                              " bytes, give the level at least that",
                          here.immovable_bytes(),
                          here.capacity_bytes()};
  }

  level_stack<Chain> stack_;
  std::vector<state_block> state_;
  Prefetch prefetch_;
  std::uint64_t prefetch_bytes_;
  std::function<ticket(stream_ref)> work_so_far_;
  std::deque<release_to_come> releases_;  ///< oldest first
  std::array<ending_blocks, level_count> ending_{};
};

}  // namespace terrace
