// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/concepts/eviction_policy.hpp>
#include <terrace/core/block_map.hpp>
#include <terrace/core/error.hpp>
#include <terrace/core/ids.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

namespace terrace::evict {

/// Evicts the block whose next use is the farthest away: no policy misses less on blocks of one
/// size. For replays only, since it must be told the future.
///
/// Every admit and every touch stands for the block's next occurrence in `future`, so blocks enter
/// on use and never ahead of it; a use beyond those foretold is taken as the last one.
/// Cost:   O(log n) a use; 20 bytes per foretold use.
/// Source: Belady 1966.
class oracle {
 public:
  struct options {
    std::vector<block_id> future;  ///< every use to come, in order
  };

  explicit oracle(options chosen) {
    std::vector<block_id> const& future = chosen.future;
    if (future.size() >= never) {
      throw contract_error{
          "evict::oracle: the future has more than 4294967294 uses; replay a shorter trace"};
    }
    next_same_.assign(future.size(), never);
    heap_.reserve(future.size());
    for (auto at = static_cast<position>(future.size()); at-- > 0;) {
      block* known = blocks_.find(future[at]);
      if (known != nullptr) { next_same_[at] = known->next_use; }
      if (known == nullptr) { known = &blocks_.assign(future[at], {}); }
      known->next_use = at;
    }
  }

  void admit(block_id id, std::size_t) {
    if (blocks_.find(id) == nullptr) { blocks_.assign(id, {}); }
    if (heap_.size() + 1 >= heap_.capacity()) { heap_.reserve(2 * heap_.size() + 16); }
    block* known = blocks_.find(id);
    if (!known->resident && known->next_use == never) { push({never, id}); }
    known->resident = true;
    use(id);
  }
  void touch(block_id id) noexcept { use(id); }
  void forget(block_id id) noexcept {
    if (block* known = blocks_.find(id)) { known->resident = false; }
  }
  template <class MayLeave>
  [[nodiscard]] std::optional<block_id> victim(MayLeave&& may_leave) {
    std::optional<block_id> found;
    while (!heap_.empty() && !found) {
      auto const [next_use, id] = heap_.front();
      block const& known = *blocks_.find(id);
      bool const current = known.resident && known.next_use == next_use;
      if (current && may_leave(id)) {
        found = id;
      } else {
        std::pop_heap(heap_.begin(), heap_.end());
        if (current) { refused_.push_back(heap_.back()); }
        heap_.pop_back();
      }
    }
    for (auto const& each : refused_) { push(each); }
    refused_.clear();
    return found;
  }
  void tick() noexcept {}

 private:
  using position = std::uint32_t;
  static constexpr position never = std::numeric_limits<position>::max();
  using entry = std::pair<position, block_id>;

  struct block {
    position next_use = never;
    bool resident = false;
  };

  void use(block_id id) noexcept {
    block* known = blocks_.find(id);
    if (known == nullptr || !known->resident || known->next_use == never) { return; }
    known->next_use = next_same_[known->next_use];
    push({known->next_use, id});
  }
  void push(entry const& each) {
    heap_.push_back(each);
    std::push_heap(heap_.begin(), heap_.end());
  }

  block_map<block> blocks_;
  std::vector<position> next_same_;  ///< per use: the next use of the same block
  std::vector<entry>
      heap_;  ///< farthest next use on top; entries a later use has replaced are skipped
  std::vector<entry> refused_;
};

static_assert(eviction_policy<oracle>);

}  // namespace terrace::evict
