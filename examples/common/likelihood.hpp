// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/runtime/pipeline.hpp>

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace terrace::runner {

using token_window = std::vector<std::int32_t>;

/// Windows of ids, one a line, ids with commas; empty lines are skipped.
/// Errors: format_error naming `source` and the line when an item is no id, a line has fewer than two ids, or there is
///         no window at all.
[[nodiscard]] std::vector<token_window> parse_windows(std::string_view text,
                                                      std::string const& source);

/// Cuts a text's ids into windows of at most `most` tokens, each led by `bos` if it is not
/// negative. A rest of fewer than two tokens has no likelihood and is left out.
/// Errors: contract_error when nothing is left.
[[nodiscard]] std::vector<token_window> cut_windows(std::span<std::int32_t const> ids,
                                                    std::int32_t bos,
                                                    int most);

struct likelihood {
  struct window {
    std::size_t tokens = 0;
    double mean = 0;  ///< negative log-likelihood per predicted token, natural log
  };
  double mean = 0;  ///< of the window means
  std::vector<window> windows;
};

/// Each window is a sequence of its own. `done` is called with the tokens finished so far.
[[nodiscard]] likelihood measure_likelihood(runtime::pipeline& pipeline,
                                            std::span<token_window const> windows,
                                            std::function<void(std::uint64_t)> const& done);

}  // namespace terrace::runner
