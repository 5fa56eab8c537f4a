// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/block_map.hpp>
#include <terrace/core/error.hpp>
#include <terrace/core/ids.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace terrace::evict::detail {

/// Index of a node; `no_node` is the end of a list and "not found".
using node_index = std::uint32_t;
inline constexpr node_index no_node = 0xFFFF'FFFFU;

/// One small record per resident block, found by id and named by a 32-bit index.
///
/// Records sit side by side in one array and ids in another: a touch reads one cell of the map and
/// one record, and the records of 80,000 blocks still fit a second-level cache.
template <class Record>
class block_nodes {
 public:
  [[nodiscard]] std::size_t size() const noexcept { return index_.size(); }
  [[nodiscard]] node_index find(block_id id) const noexcept {
    node_index const* found = index_.find(id);
    return found == nullptr ? no_node : *found;
  }
  [[nodiscard]] block_id id(node_index at) const noexcept { return ids_[at]; }
  [[nodiscard]] Record& operator[](node_index at) noexcept { return records_[at]; }
  [[nodiscard]] Record const& operator[](node_index at) const noexcept { return records_[at]; }

  /// Adds a block that is not there yet. Memory is reserved before anything changes, so a failure
  /// leaves no trace.
  node_index insert(block_id id, Record record) {
    TERRACE_ASSERT(id != block_id{});
    if (free_.empty()) { add_free_node(); }
    node_index const at = free_.back();
    index_.assign(id, at);
    free_.pop_back();
    ids_[at] = id;
    records_[at] = record;
    return at;
  }
  void erase(node_index at) noexcept {
    index_.erase(ids_[at]);
    ids_[at] = block_id{};
    free_.push_back(at);  // never grows: insert reserved a place for every node
  }
  /// Calls `visit(node_index)` for every block, in no particular order.
  template <class Visit>
  void for_each(Visit&& visit) const {
    index_.for_each([&](block_id, node_index at) { visit(at); });
  }

 private:
  void add_free_node() {
    std::size_t const count = records_.size();
    TERRACE_ASSERT(count < no_node);
    if (free_.capacity() <= count) {
      std::size_t const wanted = 2 * count + 16;
      records_.reserve(wanted);
      ids_.reserve(wanted);
      free_.reserve(wanted);
    }
    records_.push_back(Record{});
    ids_.push_back(block_id{});
    free_.push_back(static_cast<node_index>(count));
  }

  block_map<node_index> index_;
  std::vector<Record> records_;
  std::vector<block_id> ids_;
  std::vector<node_index> free_;
};

}  // namespace terrace::evict::detail
