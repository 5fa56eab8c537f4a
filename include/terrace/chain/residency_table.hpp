// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/chain/residency_watcher.hpp>
#include <terrace/core/block.hpp>
#include <terrace/core/block_map.hpp>
#include <terrace/core/error.hpp>
#include <terrace/core/ids.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace terrace {

/// What a store knows of one block, whatever level it is in.
struct block_record {
  block_info const* info = nullptr;
  std::uint32_t leases = 0;
  std::uint32_t ending = 0;  ///< leases among them that end once their stream gets there
  std::uint8_t target = 0;   ///< level it is read from
  bool transient = false;    ///< placed at home: leaves its level when the last lease ends
};

/// The blocks of a catalog numbered 0..n-1, so that per-level state is a flat array.
class residency_table {
 public:
  /// `blocks` is borrowed. Errors: contract_error if two blocks share an id.
  explicit residency_table(std::span<block_info const> blocks) {
    records_.reserve(blocks.size());
    for (auto const& one : blocks) {
      if (numbers_.find(one.id) != nullptr) {
        throw contract_error{"the catalog lists " + to_string(one.id) +
                             " twice; block ids must be unique"};
      }
      numbers_.assign(one.id, static_cast<std::uint32_t>(records_.size()));
      records_.push_back({.info = &one});
    }
  }

  [[nodiscard]] std::size_t size() const noexcept { return records_.size(); }
  [[nodiscard]] block_record& operator[](std::size_t number) noexcept { return records_[number]; }
  [[nodiscard]] block_record const& operator[](std::size_t number) const noexcept {
    return records_[number];
  }
  [[nodiscard]] std::optional<std::size_t> find(block_id id) const noexcept {
    auto const* number = numbers_.find(id);
    if (number == nullptr) { return std::nullopt; }
    return *number;
  }
  [[nodiscard]] std::size_t number_of(block_id id) const {
    auto const number = find(id);
    if (!number) { throw contract_error{"the catalog has no " + to_string(id)}; }
    return *number;
  }
  /// Who is told of blocks that come and go; may be null. Borrowed.
  [[nodiscard]] residency_watcher* watcher() const noexcept { return watcher_; }
  void set_watcher(residency_watcher* watcher) noexcept { watcher_ = watcher; }

 private:
  block_map<std::uint32_t> numbers_;
  std::vector<block_record> records_;
  residency_watcher* watcher_ = nullptr;
};

}  // namespace terrace
