// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <utility>

namespace terrace::tier::detail {

/// Hands out runs of one fixed range: the smallest free run that fits, the lowest of those;
/// neighbours merge when freed. Blocks of one size never fragment it. Mixed sizes may: a free total
/// is then no promise of one free run.
/// Cost: O(log n) in the number of free runs.
class range_allocator {
 public:
  explicit range_allocator(std::uint64_t bytes) {
    if (bytes != 0) { insert(0, bytes); }
  }

  [[nodiscard]] std::optional<std::uint64_t> try_take(std::uint64_t bytes) {
    auto const found = by_size_.lower_bound({bytes, 0});
    if (found == by_size_.end()) { return std::nullopt; }
    auto const [length, offset] = *found;
    by_size_.erase(found);
    by_offset_.erase(offset);
    if (length > bytes) { insert(offset + bytes, length - bytes); }
    return offset;
  }

  void give_back(std::uint64_t offset, std::uint64_t bytes) {
    auto const after = by_offset_.lower_bound(offset);
    if (after != by_offset_.begin()) {
      auto const before = std::prev(after);
      if (before->first + before->second == offset) {
        offset = before->first;
        bytes += before->second;
        remove(before);
      }
    }
    if (after != by_offset_.end() && offset + bytes == after->first) {
      bytes += after->second;
      remove(after);
    }
    insert(offset, bytes);
  }

  /// Length of the longest free run.
  [[nodiscard]] std::uint64_t longest() const noexcept {
    return by_size_.empty() ? 0 : by_size_.rbegin()->first;
  }

 private:
  using free_runs = std::map<std::uint64_t, std::uint64_t>;  // offset to length

  void insert(std::uint64_t offset, std::uint64_t bytes) {
    by_offset_.emplace(offset, bytes);
    by_size_.emplace(bytes, offset);
  }
  void remove(free_runs::iterator run) {
    by_size_.erase({run->second, run->first});
    by_offset_.erase(run);
  }

  free_runs by_offset_;
  std::set<std::pair<std::uint64_t, std::uint64_t>> by_size_;  // length, offset
};

}  // namespace terrace::tier::detail
