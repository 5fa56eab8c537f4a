// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/chain/any_store.hpp>
#include <terrace/core/error.hpp>
#include <terrace/core/ids.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace terrace::sequence {

/// Rows of one sequence, a fixed number of bytes per token and layer, in pages reserved from a
/// store as the sequence grows. Each page is a block of sequence state and counts under the store's
/// fastest level.
class row_pages {
 public:
  /// `page_bytes` holds `page_tokens` tokens of one layer; `kind` names the pages in ids and
  /// errors.
  row_pages(any_store& store,
            block_kind kind,
            int layers,
            std::size_t page_tokens,
            std::size_t page_bytes)
      : store_{&store},
        kind_{kind},
        page_tokens_{page_tokens},
        page_bytes_{page_bytes},
        pages_(static_cast<std::size_t>(layers)) {}
  row_pages(row_pages&&) = default;
  row_pages& operator=(row_pages&&) = delete;
  ~row_pages() { clear(); }

  /// Makes room for `tokens` tokens in every layer. Errors: out_of_capacity; what was reserved
  /// before stays.
  void grow(std::size_t tokens) {
    std::size_t const wanted = pages_for(tokens);
    for (std::size_t layer = 0; layer < pages_.size(); ++layer) {
      while (pages_[layer].size() < wanted) {
        auto const id = page_id(layer, pages_[layer].size());
        pages_[layer].push_back(store_->reserve_state(id, page_bytes_));
      }
    }
  }
  /// Gives all pages back; the sequence is empty again.
  void clear() noexcept {
    for (std::size_t layer = 0; layer < pages_.size(); ++layer) {
      for (std::size_t page = 0; page < pages_[layer].size(); ++page) {
        store_->release_state(page_id(layer, page));
      }
      pages_[layer].clear();
    }
  }
  [[nodiscard]] std::span<std::byte* const> layer(std::size_t index) const noexcept {
    return pages_[index];
  }
  [[nodiscard]] std::size_t page_tokens() const noexcept { return page_tokens_; }
  /// Pages of one layer that hold `tokens` tokens.
  [[nodiscard]] std::size_t pages_for(std::size_t tokens) const noexcept {
    return (tokens + page_tokens_ - 1) / page_tokens_;
  }

 private:
  [[nodiscard]] block_id page_id(std::size_t layer, std::size_t page) const noexcept {
    return make_block_id(
        kind_, layer_id{static_cast<std::uint32_t>(layer)}, static_cast<std::uint32_t>(page));
  }

  any_store* store_;
  block_kind kind_;
  std::size_t page_tokens_;
  std::size_t page_bytes_;
  std::vector<std::vector<std::byte*>> pages_;
};

}  // namespace terrace::sequence
