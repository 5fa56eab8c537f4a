// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/kda_shape.hpp>
#include <terrace/sequence/page_layout.hpp>

namespace terrace::sequence {

/// The state of a layer of Kimi delta attention: one page of float32, laid out as kda_shape says,
/// that every token overwrites. Zeros are the state before the first token.
[[nodiscard]] constexpr page_layout kda_state_page(kda_shape const& shape) noexcept {
  return {.kind = block_kind::recurrent_state, .bytes = shape.state_bytes(), .tokens = 0};
}

}  // namespace terrace::sequence
