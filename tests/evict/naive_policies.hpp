// SPDX-License-Identifier: Apache-2.0
// The eviction policies written for the reader: plain containers, everything searched from the
// start.
#pragma once

#include <terrace/core/ids.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <optional>
#include <tuple>
#include <vector>

namespace terrace::test {

using may_leave_fn = std::function<bool(block_id)>;

class naive_lru {
 public:
  void admit(block_id id, std::size_t) {
    order_.remove(id);
    order_.push_back(id);
  }
  void touch(block_id id) {
    if (std::find(order_.begin(), order_.end(), id) != order_.end()) { admit(id, 0); }
  }
  void forget(block_id id) { order_.remove(id); }
  std::optional<block_id> victim(may_leave_fn const& may_leave) {
    auto const found = std::find_if(order_.begin(), order_.end(), may_leave);
    return found == order_.end() ? std::nullopt : std::optional{*found};
  }
  void tick() {}

 private:
  std::list<block_id> order_;  ///< oldest use first
};

class naive_clock {
 public:
  explicit naive_clock(unsigned bits) : most_{(1U << bits) - 1} {}
  void admit(block_id id, std::size_t) {
    if (uses_.contains(id)) { return touch(id); }
    ring_.push_back(id);
    uses_[id] = 0;
  }
  void touch(block_id id) {
    if (uses_.contains(id)) { uses_[id] = std::min(uses_[id] + 1, most_); }
  }
  void forget(block_id id) {
    ring_.remove(id);
    uses_.erase(id);
  }
  std::optional<block_id> victim(may_leave_fn const& may_leave) {
    for (auto at = ring_.begin(); at != ring_.end();) {
      if (!may_leave(*at)) {
        ++at;
        continue;
      }
      if (uses_[*at] == 0) { return *at; }
      --uses_[*at];
      ring_.push_back(*at);
      at = ring_.erase(at);
    }
    return std::nullopt;
  }
  void tick() {}

 private:
  unsigned most_;
  std::list<block_id> ring_;  ///< the hand stands at the front
  std::map<block_id, unsigned> uses_;
};

class naive_s3_fifo {
 public:
  naive_s3_fifo(double small_share, unsigned promote_after)
      : share_{small_share}, after_{promote_after} {}
  void admit(block_id id, std::size_t bytes) {
    if (blocks_.contains(id)) { return touch(id); }
    bool const returns =
        std::erase_if(ghosts_, [id](auto const& ghost) { return ghost.first == id; }) != 0;
    (returns ? main_ : small_).push_back(id);
    blocks_[id] = {bytes, 0};
  }
  void touch(block_id id) {
    if (blocks_.contains(id)) { blocks_[id].uses = std::min(blocks_[id].uses + 1, 3U); }
  }
  void forget(block_id id) {
    if (!blocks_.contains(id)) { return; }
    std::size_t const bytes = blocks_[id].bytes;
    bool const from_small = std::find(small_.begin(), small_.end(), id) != small_.end();
    small_.remove(id);
    main_.remove(id);
    blocks_.erase(id);
    auto const limit =
        std::max(static_cast<std::size_t>((1 - share_) *
                                          static_cast<double>(bytes_of(small_) + bytes_of(main_))),
                 bytes);
    if (from_small) { ghosts_.emplace_back(id, bytes); }
    std::size_t sum = 0;
    for (auto const& ghost : ghosts_) { sum += ghost.second; }
    while (sum > limit) {
      sum -= ghosts_.front().second;
      ghosts_.erase(ghosts_.begin());
    }
  }
  std::optional<block_id> victim(may_leave_fn const& may_leave) {
    auto const small = static_cast<double>(bytes_of(small_));
    bool const small_first =
        main_.empty() || small >= share_ * (small + static_cast<double>(bytes_of(main_)));
    if (small_first) {
      auto const found = scan_small(may_leave);
      return found ? found : scan_main(may_leave);
    }
    auto const found = scan_main(may_leave);
    if (found) { return found; }
    auto const fallback = scan_small(may_leave);
    return fallback ? fallback : scan_main(may_leave);
  }
  void tick() {}

 private:
  struct block {
    std::size_t bytes = 0;
    unsigned uses = 0;
  };
  std::size_t bytes_of(std::list<block_id> const& queue) {
    std::size_t sum = 0;
    for (block_id const id : queue) { sum += blocks_[id].bytes; }
    return sum;
  }
  std::optional<block_id> scan_small(may_leave_fn const& may_leave) {
    for (auto at = small_.begin(); at != small_.end();) {
      if (blocks_[*at].uses >= after_) {
        blocks_[*at].uses = 0;
        main_.push_back(*at);
        at = small_.erase(at);
      } else if (may_leave(*at)) {
        return *at;
      } else {
        ++at;
      }
    }
    return std::nullopt;
  }
  std::optional<block_id> scan_main(may_leave_fn const& may_leave) {
    for (auto at = main_.begin(); at != main_.end();) {
      if (!may_leave(*at)) {
        ++at;
      } else if (blocks_[*at].uses == 0) {
        return *at;
      } else {
        --blocks_[*at].uses;
        main_.push_back(*at);
        at = main_.erase(at);
      }
    }
    return std::nullopt;
  }

  double share_;
  unsigned after_;
  std::list<block_id> small_;  ///< oldest first, like main_ and ghosts_
  std::list<block_id> main_;
  std::vector<std::pair<block_id, std::size_t>> ghosts_;
  std::map<block_id, block> blocks_;
};

class naive_lfu_decay {
 public:
  explicit naive_lfu_decay(double half_life) : half_life_{half_life} {}
  void admit(block_id id, std::size_t) {
    blocks_[id].resident = true;
    touch(id);
  }
  void touch(block_id id) {
    if (!blocks_.contains(id) || !blocks_[id].resident) { return; }
    block& each = blocks_[id];
    each.score = each.score * std::exp2(-static_cast<double>(now_ - each.token) / half_life_) + 1;
    each.token = now_;
    each.order = ++uses_;
  }
  void forget(block_id id) {
    if (blocks_.contains(id)) { blocks_[id].resident = false; }
  }
  std::optional<block_id> victim(may_leave_fn const& may_leave) {
    std::optional<block_id> lowest;
    for (auto const& [id, each] : blocks_) {
      if (!each.resident || !may_leave(id)) { continue; }
      if (!lowest || key(each) < key(blocks_[*lowest])) { lowest = id; }
    }
    return lowest;
  }
  void tick() { ++now_; }

 private:
  struct block {
    double score = 0;
    std::uint32_t token = 0;
    std::uint64_t order = 0;
    bool resident = false;
  };
  [[nodiscard]] std::pair<double, std::uint64_t> key(block const& each) const {
    return {std::log2(each.score) + each.token / half_life_, each.order};
  }

  double half_life_;
  std::map<block_id, block> blocks_;
  std::uint32_t now_ = 0;
  std::uint64_t uses_ = 0;
};

}  // namespace terrace::test
