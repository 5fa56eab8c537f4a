// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/error.hpp>
#include <terrace/core/ids.hpp>

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace terrace {

/// Hash map from block id to a small value: open addressing, linear probing, backward-shift
/// deletion.
///
/// Policies look a block up on every touch, so this stays one cache line in the common case where
/// the node-based standard map takes two or three. Ids of value 0 are reserved as "empty" and may
/// not be stored (no block has id 0).
/// Cost: expected O(1); memory 2 x (8 + sizeof(Value)) bytes per entry at most; growing rehashes.
template <class Value>
class block_map {
 public:
  block_map() : cells_(16) {}

  [[nodiscard]] std::size_t size() const noexcept { return size_; }

  [[nodiscard]] Value* find(block_id id) noexcept {
    for (std::size_t at = home(id);; at = next(at)) {
      if (cells_[at].first == block_id{}) { return nullptr; }  // first, so that id 0 is never found
      if (cells_[at].first == id) { return &cells_[at].second; }
    }
  }
  [[nodiscard]] Value const* find(block_id id) const noexcept {
    return const_cast<block_map*>(this)->find(id);
  }

  /// Inserts or replaces.
  Value& assign(block_id id, Value value) {
    TERRACE_ASSERT(id != block_id{});
    if (Value* found = find(id)) { return *found = std::move(value); }
    if ((size_ + 1) * 2 > cells_.size()) { grow(); }
    ++size_;
    std::size_t at = home(id);
    while (cells_[at].first != block_id{}) { at = next(at); }
    cells_[at] = {id, std::move(value)};
    return cells_[at].second;
  }

  /// Removes `id` if present; returns whether it was.
  bool erase(block_id id) noexcept {
    std::size_t at = home(id);
    while (cells_[at].first != id || id == block_id{}) {
      if (cells_[at].first == block_id{}) { return false; }
      at = next(at);
    }
    for (std::size_t probe = next(at); cells_[probe].first != block_id{}; probe = next(probe)) {
      std::size_t const ideal = home(cells_[probe].first);
      bool const may_move = ((probe - ideal) & mask()) >= ((probe - at) & mask());
      if (may_move) {
        cells_[at] = std::move(cells_[probe]);
        at = probe;
      }
    }
    cells_[at] = {};
    --size_;
    return true;
  }

  template <class Visit>
  void for_each(Visit&& visit) const {
    for (auto const& [id, value] : cells_) {
      if (id != block_id{}) { visit(id, value); }
    }
  }

 private:
  [[nodiscard]] std::size_t mask() const noexcept { return cells_.size() - 1; }
  [[nodiscard]] std::size_t next(std::size_t at) const noexcept { return (at + 1) & mask(); }
  [[nodiscard]] std::size_t home(block_id id) const noexcept {
    std::uint64_t x = static_cast<std::uint64_t>(id) * 0x9E37'79B9'7F4A'7C15ULL;
    return static_cast<std::size_t>(x ^ (x >> 32U)) & mask();
  }
  void grow() {
    std::vector<std::pair<block_id, Value>> old(cells_.size() * 2);
    old.swap(cells_);
    size_ = 0;
    for (auto& [id, value] : old) {
      if (id != block_id{}) { assign(id, std::move(value)); }
    }
  }

  std::vector<std::pair<block_id, Value>> cells_;
  std::size_t size_ = 0;
};

}  // namespace terrace
