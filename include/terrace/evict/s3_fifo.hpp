// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/concepts/eviction_policy.hpp>
#include <terrace/core/error.hpp>
#include <terrace/core/ids.hpp>
#include <terrace/evict/detail/block_nodes.hpp>
#include <terrace/evict/detail/block_queue.hpp>
#include <terrace/evict/detail/ghost_list.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <utility>

namespace terrace::evict {

/// Two queues and a memory: newcomers pass a small queue and reach the main one only when used
/// again in time, or when they were dropped recently. Shares are of the bytes resident, so blocks
/// may differ in size.
///
/// Cost:   touch O(1) without reordering anything; `victim` amortised O(1) per touch it works off.
/// Source: Yang et al., FIFO queues are all you need for cache eviction, SOSP 2023.
class s3_fifo {
 public:
  struct options {
    double small_share =
        0.1;  ///< part of the resident bytes the small queue keeps; above 0, below 1
    unsigned promote_after = 1;  ///< touches in the small queue that lead to the main one; 1 to 3
  };

  explicit s3_fifo(options chosen) : options_{chosen} {
    if (!(chosen.small_share > 0 && chosen.small_share < 1)) {
      throw contract_error{"evict::s3_fifo: small_share is " + std::to_string(chosen.small_share) +
                           "; choose a share above 0 and below 1"};
    }
    if (chosen.promote_after < 1 || chosen.promote_after > most_uses) {
      throw contract_error{"evict::s3_fifo: promote_after is " +
                           std::to_string(chosen.promote_after) + "; choose 1, 2 or 3"};
    }
  }

  void admit(block_id id, std::size_t bytes) {
    if (nodes_.find(id) != detail::no_node) { return touch(id); }
    auto const at = nodes_.insert(id, record{{}, bytes, 0, false});
    enter(at, ghosts_.recall(id));
  }
  void touch(block_id id) noexcept {
    detail::node_index const at = nodes_.find(id);
    if (at != detail::no_node && nodes_[at].uses < most_uses) { ++nodes_[at].uses; }
  }
  void forget(block_id id) noexcept {
    detail::node_index const at = nodes_.find(id);
    if (at == detail::no_node) { return; }
    record const gone = nodes_[at];
    leave(at);
    nodes_.erase(at);
    auto const main_share =
        static_cast<std::uint64_t>((1 - options_.small_share) * static_cast<double>(resident()));
    ghosts_.shrink_to(std::max(main_share, gone.bytes));
    if (!gone.in_main) { ghosts_.remember(id, gone.bytes, std::max(main_share, gone.bytes)); }
  }
  template <class MayLeave>
  [[nodiscard]] std::optional<block_id> victim(MayLeave&& may_leave) {
    bool const small_first = static_cast<double>(small_bytes_) >=
                                 options_.small_share * static_cast<double>(resident()) ||
                             main_.empty();
    for (auto const how : {detail::effort::quick, detail::effort::full}) {
      for (bool const from_small : {small_first, !small_first}) {
        auto const at = from_small ? scan_small(how, may_leave) : scan_main(how, may_leave);
        if (at != detail::no_node) { return nodes_.id(at); }
      }
    }
    return std::nullopt;
  }
  void tick() noexcept {}

 private:
  static constexpr std::uint8_t most_uses = 3;

  struct record : detail::queue_links {
    std::uint64_t bytes = 0;
    std::uint8_t uses = 0;
    bool in_main = false;
  };

  [[nodiscard]] std::uint64_t resident() const noexcept { return small_bytes_ + main_bytes_; }
  void enter(detail::node_index at, bool main) noexcept {
    nodes_[at].in_main = main;
    (main ? main_ : small_).append(nodes_, at);
    (main ? main_bytes_ : small_bytes_) += nodes_[at].bytes;
  }
  void leave(detail::node_index at) noexcept {
    bool const main = nodes_[at].in_main;
    (main ? main_ : small_).unlink(nodes_, at);
    (main ? main_bytes_ : small_bytes_) -= nodes_[at].bytes;
  }
  template <class MayLeave>
  [[nodiscard]] detail::node_index scan_small(detail::effort how, MayLeave& may_leave) {
    return small_.scan(nodes_, how, [&](detail::node_index at) {
      if (nodes_[at].uses >= options_.promote_after) {
        leave(at);
        nodes_[at].uses = 0;
        enter(at, true);
        return detail::verdict::moved;
      }
      return may_leave(nodes_.id(at)) ? detail::verdict::take : detail::verdict::refuse;
    });
  }
  template <class MayLeave>
  [[nodiscard]] detail::node_index scan_main(detail::effort how, MayLeave& may_leave) {
    return main_.scan(nodes_, how, [&](detail::node_index at) {
      if (!may_leave(nodes_.id(at))) { return detail::verdict::refuse; }
      if (nodes_[at].uses == 0) { return detail::verdict::take; }
      --nodes_[at].uses;
      return detail::verdict::requeue;
    });
  }

  options options_;
  detail::block_nodes<record> nodes_;
  detail::block_queue small_;
  detail::block_queue main_;
  detail::ghost_list ghosts_;
  std::uint64_t small_bytes_ = 0;
  std::uint64_t main_bytes_ = 0;
};

static_assert(eviction_policy<s3_fifo>);

}  // namespace terrace::evict
