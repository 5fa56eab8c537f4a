// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/error.hpp>

#include <cstddef>
#include <span>
#include <string>

namespace terrace {

/// Where keys and values lie inside a page. Offsets and strides count elements (float32, or
/// binary16 when `half`) from the page's start.
struct kv_layout {
  bool half = false;
  std::size_t page_tokens = 0;
  std::size_t k_offset = 0;
  std::size_t k_head_stride = 0;
  std::size_t k_token_stride = 0;
  std::size_t v_offset = 0;
  std::size_t v_head_stride = 0;
  std::size_t v_token_stride = 0;

  [[nodiscard]] std::size_t element_bytes() const noexcept { return half ? 2 : 4; }
};

/// The keys and values of one sequence and layer: position p lies in pages[p / page_tokens]. The
/// list of pages is in the memory of the backend that reads it.
struct kv_pages {
  kv_layout layout;
  std::span<std::byte* const> pages;

  [[nodiscard]] std::byte* key(std::size_t position, std::size_t head) const noexcept {
    return at(position, layout.k_offset + head * layout.k_head_stride, layout.k_token_stride);
  }
  [[nodiscard]] std::byte* value(std::size_t position, std::size_t head) const noexcept {
    return at(position, layout.v_offset + head * layout.v_head_stride, layout.v_token_stride);
  }
  /// Throws contract_error unless there is a page for each of the first `positions` positions.
  void require(std::size_t positions) const {
    if (layout.page_tokens == 0 ||
        pages.size() < (positions + layout.page_tokens - 1) / layout.page_tokens) {
      throw contract_error{std::to_string(pages.size()) + " pages of " +
                           std::to_string(layout.page_tokens) + " tokens cannot hold " +
                           std::to_string(positions) + " positions"};
    }
  }

 private:
  [[nodiscard]] std::byte* at(std::size_t position,
                              std::size_t first,
                              std::size_t token_stride) const noexcept {
    std::size_t const slot = position % layout.page_tokens;
    return pages[position / layout.page_tokens] +
           (first + slot * token_stride) * layout.element_bytes();
  }
};

/// Queries and cached rows of one call. Token t stands at position first_position + t.
struct attention_shape {
  std::size_t tokens;
  std::size_t heads;  ///< query heads; a multiple of kv_heads, consecutive ones share a key head
  std::size_t kv_heads;
  std::size_t d_k;
  std::size_t d_v;
  std::size_t first_position;
  float scale;  ///< factor on q . k
};

}  // namespace terrace
