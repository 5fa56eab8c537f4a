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

/// Bytes that the layers of a sequence of `tokens` tokens take, each page as `counted` counts it,
/// beside `snapshots` of it, each of which copies a page a layer.
template <class Counted>
[[nodiscard]] std::uint64_t state_bytes(std::span<page_layout const> layers,
                                        std::size_t tokens,
                                        std::size_t snapshots,
                                        Counted&& counted) {
  std::uint64_t sum = 0;
  for (auto const& layer : layers) {
    sum += (layer.pages_for(tokens) + snapshots) * counted(layer.bytes);
  }
  return sum;
}

}  // namespace terrace::sequence
