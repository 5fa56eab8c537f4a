// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string_view>

namespace terrace::model {

/// Values inside a pass, where the host can read them; for drafts that start from them, and for
/// measurements.
struct inner_values {
  /// "stream": the live sum [tokens, hidden], after the embedding and after each layer.
  /// "mixture": shares [tokens, candidates] of a residual bank, in the order in which layers read
  /// it, the head last; stored sums oldest first, the live sum at the end.
  std::string_view name;
  std::size_t rows = 0, cols = 0;
  std::span<float const> values;  ///< [rows, cols]; valid during the call
};

using inner_watcher = std::function<void(inner_values const&)>;

}  // namespace terrace::model
