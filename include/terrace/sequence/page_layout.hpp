// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/ids.hpp>

#include <cstddef>
#include <cstdint>
#include <span>

namespace terrace::sequence {

/// How one layer keeps the state of a sequence: a page for every `tokens` tokens or, with
/// `tokens` 0, one page whatever the length.
struct page_layout {
  block_kind kind = block_kind::kv_page;
  std::size_t bytes = 0;  ///< of a page
  std::size_t tokens = 0;

  [[nodiscard]] constexpr bool is_fixed() const noexcept { return tokens == 0; }
  /// Pages of a sequence of `count` tokens.
  [[nodiscard]] constexpr std::size_t pages_for(std::size_t count) const noexcept {
    if (is_fixed()) { return count > 0 ? 1 : 0; }
    return (count + tokens - 1) / tokens;
  }
  bool operator==(page_layout const&) const = default;
};

/// What the layers of a sequence take, in all and in pages of one size.
struct state_size {
  std::uint64_t bytes = 0, recurrent_bytes = 0;
};

/// Sizes a sequence of `tokens` tokens, each page as `counted` counts it, and `snapshots` of it
/// beside it, each of which copies a page a layer.
template <class Counted>
[[nodiscard]] state_size size_state(std::span<page_layout const> layers,
                                    std::size_t tokens,
                                    std::size_t snapshots,
                                    Counted&& counted) {
  state_size sum;
  for (auto const& layer : layers) {
    std::uint64_t const bytes = (layer.pages_for(tokens) + snapshots) * counted(layer.bytes);
    sum.bytes += bytes;
    if (layer.is_fixed()) { sum.recurrent_bytes += bytes; }
  }
  return sum;
}

}  // namespace terrace::sequence
