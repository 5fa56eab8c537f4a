// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/ids.hpp>
#include <terrace/evict/detail/block_nodes.hpp>
#include <terrace/evict/detail/block_queue.hpp>

#include <cstdint>
#include <new>

namespace terrace::evict::detail {

/// Ids of blocks dropped lately, oldest forgotten first, bounded by the bytes those blocks had.
class ghost_list {
 public:
  /// Remembers `id` and keeps at most `limit_bytes` worth of blocks. Best effort: out of memory, it
  /// forgets instead.
  void remember(block_id id, std::uint64_t bytes, std::uint64_t limit_bytes) noexcept {
    static_cast<void>(recall(id));
    try {
      order_.append(nodes_, nodes_.insert(id, record{{}, bytes}));
      bytes_ += bytes;
    } catch (std::bad_alloc const&) { return; }
    shrink_to(limit_bytes);
  }
  /// Whether `id` is remembered; forgets it.
  [[nodiscard]] bool recall(block_id id) noexcept {
    node_index const at = nodes_.find(id);
    if (at == no_node) { return false; }
    drop(at);
    return true;
  }
  void shrink_to(std::uint64_t limit_bytes) noexcept {
    while (bytes_ > limit_bytes) { drop(order_.oldest()); }
  }

 private:
  struct record : queue_links {
    std::uint64_t bytes = 0;
  };
  void drop(node_index at) noexcept {
    bytes_ -= nodes_[at].bytes;
    order_.unlink(nodes_, at);
    nodes_.erase(at);
  }

  block_nodes<record> nodes_;
  block_queue order_;
  std::uint64_t bytes_ = 0;
};

}  // namespace terrace::evict::detail
