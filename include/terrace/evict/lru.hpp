// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/concepts/eviction_policy.hpp>
#include <terrace/core/ids.hpp>
#include <terrace/evict/detail/block_nodes.hpp>
#include <terrace/evict/detail/block_queue.hpp>

#include <cstddef>
#include <optional>

namespace terrace::evict {

/// Evicts the block whose last use is the longest ago.
///
/// A level smaller than one token's cycle (layers x top-k experts) hits nothing under this policy:
/// every block is evicted just before it is needed again. Prefer lfu_decay there.
/// Cost: every call O(1); `victim` as block_queue::scan.
class lru {
 public:
  struct options {};

  explicit lru(options) {}

  void admit(block_id id, std::size_t) {
    if (detail::node_index const known = nodes_.find(id); known != detail::no_node) {
      order_.make_newest(nodes_, known);
      return;
    }
    order_.append(nodes_, nodes_.insert(id, {}));
  }
  void touch(block_id id) noexcept {
    if (detail::node_index const at = nodes_.find(id); at != detail::no_node) {
      order_.make_newest(nodes_, at);
    }
  }
  void forget(block_id id) noexcept {
    detail::node_index const at = nodes_.find(id);
    if (at == detail::no_node) { return; }
    order_.unlink(nodes_, at);
    nodes_.erase(at);
  }
  template <class MayLeave>
  [[nodiscard]] std::optional<block_id> victim(MayLeave&& may_leave) {
    auto const at = order_.scan(nodes_, detail::effort::full, [&](detail::node_index node) {
      return may_leave(nodes_.id(node)) ? detail::verdict::take : detail::verdict::refuse;
    });
    return at == detail::no_node ? std::nullopt : std::optional{nodes_.id(at)};
  }
  void tick() noexcept {}

 private:
  detail::block_nodes<detail::queue_links> nodes_;
  detail::block_queue order_;
};

static_assert(eviction_policy<lru>);

}  // namespace terrace::evict
