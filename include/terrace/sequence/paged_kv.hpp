// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/attention_shape.hpp>
#include <terrace/sequence/page_layout.hpp>

#include <cstddef>

namespace terrace::sequence {

inline constexpr std::size_t page_tokens = 64;

/// A page of keys and values of grouped-query attention: K [kv_heads, page_tokens, key_dim], then
/// V [kv_heads, page_tokens, value_dim]; float32, or IEEE half when `half`. Offsets and strides are
/// in elements.
[[nodiscard]] constexpr kv_layout paged_kv_layout(std::size_t kv_heads,
                                                  std::size_t key_dim,
                                                  std::size_t value_dim,
                                                  bool half) noexcept {
  return {.half = half,
          .page_tokens = page_tokens,
          .k_offset = 0,
          .k_head_stride = page_tokens * key_dim,
          .k_token_stride = key_dim,
          .v_offset = kv_heads * page_tokens * key_dim,
          .v_head_stride = page_tokens * value_dim,
          .v_token_stride = value_dim};
}
[[nodiscard]] constexpr page_layout paged_kv_page(std::size_t kv_heads,
                                                  std::size_t key_dim,
                                                  std::size_t value_dim,
                                                  bool half) noexcept {
  return {.kind = block_kind::kv_page,
          .bytes = kv_heads * page_tokens * (key_dim + value_dim) * (half ? 2 : 4),
          .tokens = page_tokens};
}

}  // namespace terrace::sequence
