// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/concepts/eviction_policy.hpp>
#include <terrace/concepts/prefetch_policy.hpp>
#include <terrace/core/ids.hpp>
#include <terrace/observe/routing_trace.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace terrace::replay {

/// What one pair of policies made of a trace.
struct outcome {
  std::uint64_t hits = 0;
  std::uint64_t misses = 0;
  std::uint64_t prefetched = 0;
  std::uint64_t prefetch_used = 0;  ///< asked for before they left
  std::uint64_t prefetch_wasted =
      0;  ///< evicted, or left at the end, without having been asked for

  [[nodiscard]] std::uint64_t requests() const noexcept { return hits + misses; }
  [[nodiscard]] double hit_rate() const noexcept {
    return requests() == 0 ? 0 : static_cast<double>(hits) / static_cast<double>(requests());
  }
  friend bool operator==(outcome const&, outcome const&) = default;
};

[[nodiscard]] inline block_id block_of(observe::routing_trace const& trace,
                                       std::size_t layer,
                                       std::uint16_t expert) {
  return expert_block(layer_id{trace.first_layer + static_cast<std::uint32_t>(layer)},
                      expert_id{expert});
}

/// Every block of the trace in the order in which it is asked for.
[[nodiscard]] inline std::vector<block_id> requests_of(observe::routing_trace const& trace) {
  std::vector<block_id> ids;
  ids.reserve(trace.chosen.size());
  for (std::size_t token = 0; token < trace.tokens.size(); ++token) {
    for (std::size_t layer = 0; layer < trace.layers; ++layer) {
      for (auto const expert : trace.at(token, layer)) {
        ids.push_back(block_of(trace, layer, expert));
      }
    }
  }
  return ids;
}

/// One level of equal slots that behaves as the store does: a layer's set is asked for as a whole,
/// none of it may be evicted until the next set is asked for, and what the prefetch policy suggests
/// afterwards enters as long as something outside the set may leave. Suggested blocks arrive before
/// the next layer.
template <eviction_policy Evict, prefetch_policy Prefetch>
class simulation {
 public:
  simulation(observe::routing_trace const& trace,
             std::size_t capacity_blocks,
             Evict evict,
             Prefetch prefetch)
      : trace_{trace},
        capacity_{capacity_blocks},
        evict_{std::move(evict)},
        prefetch_{std::move(prefetch)},
        slots_(std::size_t{trace.layers} * trace.experts) {}

  [[nodiscard]] outcome run() {
    for (std::size_t token = 0; token < trace_.tokens.size(); ++token) {
      for (std::size_t layer = 0; layer < trace_.layers; ++layer) {
        acquire(layer, trace_.at(token, layer));
        fetch_ahead();
      }
      evict_.tick();
    }
    for (slot const& each : slots_) { counted_.prefetch_wasted += each.resident && each.unasked; }
    return counted_;
  }

 private:
  struct slot {
    std::uint64_t held_by = 0;  ///< number of the set that keeps it from leaving
    bool resident = false;
    bool unasked = false;  ///< prefetched and not asked for yet
  };

  [[nodiscard]] slot& slot_of(block_id id) {
    std::size_t const layer = static_cast<std::uint32_t>(layer_of(id)) - trace_.first_layer;
    return slots_[layer * trace_.experts + index_of(id)];
  }
  void acquire(std::size_t layer, std::span<std::uint16_t const> experts) {
    ++set_;
    for (auto const expert : experts) {
      block_id const id = block_of(trace_, layer, expert);
      slot& each = slot_of(id);
      each.held_by = set_;
      ++(each.resident ? counted_.hits : counted_.misses);
      prefetch_.observe({.block = id, .hit = each.resident});
      if (!each.resident) { continue; }
      evict_.touch(id);
      counted_.prefetch_used += each.unasked;
      each.unasked = false;
    }
    for (auto const expert : experts) {
      block_id const id = block_of(trace_, layer, expert);
      if (slot_of(id).resident) { continue; }
      static_cast<void>(enter(id));  // where nothing may leave, it is used in passing
    }
  }
  void fetch_ahead() {
    std::array<block_id, 64> suggested{};
    std::size_t const count = prefetch_.suggest(suggested);
    for (block_id const id : std::span{suggested}.first(count)) {
      slot& each = slot_of(id);
      if (each.resident) { continue; }
      if (!enter(id)) { return; }
      each.held_by = set_;  // in flight
      each.unasked = true;
      ++counted_.prefetched;
    }
  }
  /// False when the level is full of blocks that may not leave.
  [[nodiscard]] bool enter(block_id id) {
    if (resident_ >= capacity_) {
      auto const victim =
          evict_.victim([this](block_id other) { return slot_of(other).held_by != set_; });
      if (!victim) { return false; }
      slot& gone = slot_of(*victim);
      counted_.prefetch_wasted += gone.unasked;
      gone = {};
      evict_.forget(*victim);
      --resident_;
    }
    slot_of(id).resident = true;
    ++resident_;
    evict_.admit(id, 1);
    return true;
  }

  observe::routing_trace const& trace_;
  std::size_t capacity_;
  Evict evict_;
  Prefetch prefetch_;
  std::vector<slot> slots_;  ///< [layers, experts]
  std::size_t resident_ = 0;
  std::uint64_t set_ = 0;
  outcome counted_;
};

}  // namespace terrace::replay
