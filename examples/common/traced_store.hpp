// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/chain/any_store.hpp>
#include <terrace/concepts/memory_tier.hpp>
#include <terrace/observe/trace.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace terrace::runner {

/// A store that reports each set it leases to a timeline. Both are borrowed.
class traced_store final : public any_store {
 public:
  static constexpr std::uint32_t track = 2;

  traced_store(any_store& store, observe::trace_writer& trace) : store_{&store}, trace_{&trace} {
    trace.name_track(track, "store");
  }

  [[nodiscard]] lease acquire(stream_ref on, std::span<block_id const> ids) override {
    auto const start = trace_->now_ns();
    auto leased = store_->acquire(on, ids);
    std::size_t missing = 0;
    for (std::size_t i = 0; i < leased.size(); ++i) { missing += leased.arrived(i) ? 0 : 1; }
    report(ids, missing, start);
    return leased;
  }
  std::size_t prefetch(std::span<block_id const> ids) override { return store_->prefetch(ids); }
  void hint(lookahead const& ahead) override { store_->hint(ahead); }
  [[nodiscard]] std::byte* reserve_state(block_id id, std::size_t bytes) override {
    return store_->reserve_state(id, bytes);
  }
  void release_state(block_id id) noexcept override { store_->release_state(id); }
  [[nodiscard]] tier_traits traits_of(block_id id) const override { return store_->traits_of(id); }
  void watch(residency_watcher* watcher) override { store_->watch(watcher); }
  void tick() noexcept override { store_->tick(); }
  [[nodiscard]] std::size_t room_for(block_id id) const override { return store_->room_for(id); }
  [[nodiscard]] std::vector<observe::tier_counters> counters() const override {
    return store_->counters();
  }

 private:
  void report(std::span<block_id const> ids, std::size_t missing, std::uint64_t start) {
    if (ids.empty()) { return; }
    std::array const arguments{
        observe::trace_argument{"blocks", static_cast<std::int64_t>(ids.size())},
        observe::trace_argument{"on their way", static_cast<std::int64_t>(missing)},
    };
    trace_->complete({.name = to_string(ids.front()),
                      .category = "acquire",
                      .track = track,
                      .start_ns = start,
                      .duration_ns = trace_->now_ns() - start,
                      .arguments = arguments});
  }

  any_store* store_;
  observe::trace_writer* trace_;
};

}  // namespace terrace::runner
