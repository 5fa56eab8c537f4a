// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/concepts/prefetch_policy.hpp>
#include <terrace/core/ids.hpp>

#include <cstddef>
#include <span>

namespace terrace::prefetch {

/// Fetches nothing ahead.
class none {
 public:
  struct options {};

  none() = default;
  explicit none(options) noexcept {}

  void observe(access const&) noexcept {}
  void hint(lookahead const&) noexcept {}
  [[nodiscard]] std::size_t suggest(std::span<block_id>) noexcept { return 0; }
};

static_assert(prefetch_policy<none>);

}  // namespace terrace::prefetch
