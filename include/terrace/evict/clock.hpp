// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/concepts/eviction_policy.hpp>
#include <terrace/core/error.hpp>
#include <terrace/core/ids.hpp>
#include <terrace/evict/detail/block_nodes.hpp>
#include <terrace/evict/detail/block_queue.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace terrace::evict {

/// Second chances: each use raises a small counter, the hand lowers the counters it passes and
/// evicts at zero.
///
/// The ring is a queue here: the hand stands at the oldest block, and a block it passes becomes the
/// newest. A block that may not leave keeps its counter and its place.
/// Cost: touch O(1) without reordering anything; `victim` amortised O(1) per touch it works off.
class clock {
 public:
  struct options {
    unsigned counter_bits = 3;  ///< 1 to 8; 1 is the classic clock, 3 held up best on expert traces
  };

  explicit clock(options chosen) {
    if (chosen.counter_bits < 1 || chosen.counter_bits > 8) {
      throw contract_error{"evict::clock: counter_bits is " + std::to_string(chosen.counter_bits) +
                           "; choose a width from 1 to 8"};
    }
    most_ = static_cast<std::uint8_t>((1U << chosen.counter_bits) - 1U);
  }

  void admit(block_id id, std::size_t) {
    if (nodes_.find(id) != detail::no_node) { return touch(id); }
    ring_.append(nodes_, nodes_.insert(id, {}));
  }
  void touch(block_id id) noexcept {
    detail::node_index const at = nodes_.find(id);
    if (at != detail::no_node && nodes_[at].uses < most_) { ++nodes_[at].uses; }
  }
  void forget(block_id id) noexcept {
    detail::node_index const at = nodes_.find(id);
    if (at == detail::no_node) { return; }
    ring_.unlink(nodes_, at);
    nodes_.erase(at);
  }
  template <class MayLeave>
  [[nodiscard]] std::optional<block_id> victim(MayLeave&& may_leave) {
    auto const at = ring_.scan(nodes_, detail::effort::full, [&](detail::node_index node) {
      if (!may_leave(nodes_.id(node))) { return detail::verdict::refuse; }
      if (nodes_[node].uses == 0) { return detail::verdict::take; }
      --nodes_[node].uses;
      return detail::verdict::requeue;
    });
    return at == detail::no_node ? std::nullopt : std::optional{nodes_.id(at)};
  }
  void tick() noexcept {}

 private:
  struct record : detail::queue_links {
    std::uint8_t uses = 0;
  };
  detail::block_nodes<record> nodes_;
  detail::block_queue ring_;
  std::uint8_t most_ = 0;
};

static_assert(eviction_policy<clock>);

}  // namespace terrace::evict
