// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/concepts/eviction_policy.hpp>
#include <terrace/core/error.hpp>
#include <terrace/core/ids.hpp>
#include <terrace/evict/detail/block_nodes.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

namespace terrace::evict {

/// Evicts the block with the fewest uses, where a use counts half after `half_life_tokens`; among
/// equals the one used longest ago. The most robust single choice on expert traces.
///
/// A score s at token t orders as log2 s + t / half-life, which does not change as time passes and
/// only rises with use. So touches only update the record, and a heap learns of the new score when
/// the block next comes to its top.
///
/// Scores outlive residency: a block that comes back resumes its old score. Without that a level
/// smaller than one token's cycle would forget every block before its second use.
/// Cost: touch O(1); `victim` amortised O(log n) per touch. Up to 64 refused blocks the victim is exact; beyond, a
///       block that has become free is noticed within (refused / 64) calls. About 60 bytes per
///       block resident or remembered.
class lfu_decay {
 public:
  struct options {
    double half_life_tokens = 16;      ///< ticks that halve a use; above 0, at most a million
    std::size_t remembered = 131'072;  ///< scores kept of blocks that left; at most 16 million
  };

  explicit lfu_decay(options chosen)
      : half_life_{chosen.half_life_tokens}, most_remembered_{chosen.remembered} {
    if (!(half_life_ > 0 && half_life_ <= 1e6)) {
      throw contract_error{"evict::lfu_decay: half_life_tokens is " + std::to_string(half_life_) +
                           "; choose a number above 0 and at most 1000000"};
    }
    if (most_remembered_ > 16'777'216) {
      throw contract_error{"evict::lfu_decay: remembered is " + std::to_string(most_remembered_) +
                           "; choose at most 16777216 blocks"};
    }
    for (std::size_t age = 0; age < decay_.size(); ++age) {
      decay_[age] = std::exp2(-static_cast<double>(age) / half_life_);
    }
  }

  void admit(block_id id, std::size_t) {
    detail::node_index at = nodes_.find(id);
    if (at != detail::no_node && nodes_[at].resident) { return use(nodes_[at]); }
    if (heap_.size() == heap_.capacity()) { heap_.reserve(2 * heap_.size() + 16); }
    if (at == detail::no_node) {
      at = nodes_.insert(id, {});
      if (at >= generations_.size()) { generations_.resize(at + std::size_t{1}); }
    }
    use(nodes_[at]);
    nodes_[at].resident = true;
    nodes_[at].stale = false;
    ++resident_;
    push(current(at));
    compact();
  }
  void touch(block_id id) noexcept {
    detail::node_index const at = nodes_.find(id);
    if (at != detail::no_node && nodes_[at].resident) { use(nodes_[at]); }
  }
  void forget(block_id id) noexcept {
    detail::node_index const at = nodes_.find(id);
    if (at == detail::no_node || !nodes_[at].resident) { return; }
    nodes_[at].resident = false;
    --resident_;
    ++generations_[at];
    ++dead_;
  }
  template <class MayLeave>
  [[nodiscard]] std::optional<block_id> victim(MayLeave&& may_leave) {
    ask_again(may_leave);
    auto found = lowest(may_leave);
    if (!found && !refused_.empty()) {
      for (entry const& each : refused_) { push(each); }
      refused_.clear();
      found = lowest(may_leave);
    }
    refused_.insert(refused_.end(), just_refused_.begin(), just_refused_.end());
    just_refused_.clear();
    return found;
  }
  void tick() noexcept { ++now_; }

 private:
  static constexpr int recheck_limit = 64;

  struct record {
    double score = 0;         ///< decayed uses, as of `token`
    std::uint64_t order = 0;  ///< running number of the last use
    std::uint32_t token = 0;  ///< token of the last use
    bool resident = false;
    bool stale = false;  ///< used since its heap entry was made
  };
  struct entry {
    double key;  ///< log2 score + token / half-life
    std::uint64_t order;
    detail::node_index node;
    std::uint32_t generation;
    /// Heaps of the standard library keep the largest on top.
    friend bool operator<(entry const& a, entry const& b) noexcept {
      return a.key != b.key ? a.key > b.key : a.order > b.order;
    }
  };

  [[nodiscard]] double decay_over(std::uint32_t tokens) const noexcept {
    return tokens < decay_.size() ? decay_[tokens]
                                  : std::exp2(-static_cast<double>(tokens) / half_life_);
  }
  void use(record& block) noexcept {
    block.score = block.score * decay_over(now_ - block.token) + 1.0;
    block.order = ++uses_;
    block.token = now_;
    block.stale = true;
  }
  [[nodiscard]] entry current(detail::node_index at) const noexcept {
    record const& block = nodes_[at];
    return {std::log2(block.score) + block.token / half_life_, block.order, at, generations_[at]};
  }
  [[nodiscard]] bool alive(entry const& each) const noexcept {
    return generations_[each.node] == each.generation;
  }
  void push(entry const& each) {
    heap_.push_back(each);
    std::push_heap(heap_.begin(), heap_.end());
  }
  void pop() noexcept {
    std::pop_heap(heap_.begin(), heap_.end());
    heap_.pop_back();
  }

  /// Asks about the blocks refused longest ago; those that may leave now return to the heap.
  template <class MayLeave>
  void ask_again(MayLeave& may_leave) {
    std::size_t const count = std::min<std::size_t>(recheck_limit, refused_.size());
    for (std::size_t i = 0; i < count; ++i) {
      entry const each = refused_.front();
      refused_.pop_front();
      if (!alive(each)) {
        --dead_;
      } else if (may_leave(nodes_.id(each.node))) {
        push(each);
      } else {
        refused_.push_back(each);
      }
    }
  }
  /// The lowest block of the heap that may leave; blocks refused on the way move to
  /// `just_refused_`.
  template <class MayLeave>
  [[nodiscard]] std::optional<block_id> lowest(MayLeave& may_leave) {
    while (!heap_.empty()) {
      entry const top = heap_.front();
      if (!alive(top)) {
        pop();
        --dead_;
      } else if (nodes_[top.node].stale) {
        pop();
        nodes_[top.node].stale = false;
        push(current(top.node));
      } else if (may_leave(nodes_.id(top.node))) {
        return nodes_.id(top.node);
      } else {
        just_refused_.push_back(top);
        pop();
      }
    }
    return std::nullopt;
  }
  /// Drops the heap entries of blocks that left once they outnumber the others, and the lower half
  /// of the scores remembered once there are too many.
  void compact() {
    if (dead_ > resident_ + 64) {
      auto const gone = [this](entry const& each) { return !alive(each); };
      std::erase_if(heap_, gone);
      std::erase_if(refused_, gone);
      std::make_heap(heap_.begin(), heap_.end());
      dead_ = 0;
    }
    if (nodes_.size() - resident_ <= most_remembered_) { return; }
    std::vector<entry> absent;
    nodes_.for_each([&](detail::node_index at) {
      if (!nodes_[at].resident) { absent.push_back(current(at)); }
    });
    auto const middle = absent.begin() + static_cast<std::ptrdiff_t>(absent.size() / 2);
    std::nth_element(absent.begin(), middle, absent.end());
    for (auto each = middle; each != absent.end(); ++each) { nodes_.erase(each->node); }
  }

  double half_life_;
  std::size_t most_remembered_;
  std::array<double, 1024> decay_{};  ///< exp2(-age / half-life)
  detail::block_nodes<record> nodes_;
  std::size_t resident_ = 0;
  std::vector<std::uint32_t> generations_;  ///< per node; raised when its block leaves
  std::vector<entry> heap_;
  std::deque<entry> refused_;  ///< asked before and refused, longest ago first
  std::vector<entry> just_refused_;
  std::uint64_t uses_ = 0;
  std::uint32_t now_ = 0;
  std::size_t dead_ = 0;  ///< entries of blocks that left
};

static_assert(eviction_policy<lfu_decay>);

}  // namespace terrace::evict
