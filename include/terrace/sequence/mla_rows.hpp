// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/attention_shape.hpp>
#include <terrace/sequence/page_layout.hpp>
#include <terrace/sequence/paged_kv.hpp>

#include <cstddef>

namespace terrace::sequence {

/// A page of latent attention: one row per token for all heads, the normed latent first and the
/// shared key part, rotated where the model rotates, after it. The value of a token is the latent
/// itself, so V is the first `latent` elements of the K row.
[[nodiscard]] constexpr kv_layout mla_row_layout(std::size_t latent,
                                                 std::size_t rope,
                                                 bool half) noexcept {
  return {.half = half,
          .page_tokens = page_tokens,
          .k_offset = 0,
          .k_head_stride = 0,
          .k_token_stride = latent + rope,
          .v_offset = 0,
          .v_head_stride = 0,
          .v_token_stride = latent + rope};
}
[[nodiscard]] constexpr page_layout mla_row_page(std::size_t latent,
                                                 std::size_t rope,
                                                 bool half) noexcept {
  return {.kind = block_kind::mla_page,
          .bytes = page_tokens * (latent + rope) * (half ? 2 : 4),
          .tokens = page_tokens};
}

}  // namespace terrace::sequence
