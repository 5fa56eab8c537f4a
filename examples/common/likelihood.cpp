// SPDX-License-Identifier: Apache-2.0
#include "likelihood.hpp"

#include "numbers.hpp"

#include <terrace/core/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

namespace terrace::runner {

std::vector<token_window> parse_windows(std::string_view text, std::string const& source) {
  std::vector<token_window> windows;
  for (std::size_t line = 1; !text.empty(); ++line) {
    auto const end = std::min(text.find('\n'), text.size());
    auto one = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (one.ends_with('\r')) { one.remove_suffix(1); }
    if (one.find_first_not_of(" \t") == std::string_view::npos) { continue; }
    auto ids = parse_ids(one);
    if (!ids || ids->size() < 2) {
      throw format_error{fmt::format(
          "{}: line {} is not a window of at least two ids with commas, like 1,2,3", source, line)};
    }
    windows.push_back(*std::move(ids));
  }
  if (windows.empty()) {
    throw format_error{source + " holds no window of ids; write one a line, like 1,2,3"};
  }
  return windows;
}

std::vector<token_window> cut_windows(std::span<std::int32_t const> ids,
                                      std::int32_t bos,
                                      int most) {
  std::vector<token_window> windows;
  std::size_t const led = bos >= 0 ? 1 : 0;
  std::size_t const length = static_cast<std::size_t>(std::max(most, 2)) - led;
  for (std::size_t at = 0; at < ids.size(); at += length) {
    auto const part = ids.subspan(at, std::min(length, ids.size() - at));
    if (part.size() + led < 2) { continue; }
    token_window window;
    if (led == 1) { window.push_back(bos); }
    window.insert(window.end(), part.begin(), part.end());
    windows.push_back(std::move(window));
  }
  if (windows.empty()) {
    throw contract_error{
        "the text has fewer than two tokens, so there is nothing to predict; give a longer one"};
  }
  return windows;
}

likelihood measure_likelihood(runtime::pipeline& pipeline,
                              std::span<token_window const> windows,
                              std::function<void(std::uint64_t)> const& done) {
  likelihood result;
  std::uint64_t tokens = 0;
  for (auto const& window : windows) {
    auto const each = pipeline.nll(window);
    double const sum = std::accumulate(each.begin(), each.end(), 0.0);
    result.windows.push_back(
        {.tokens = window.size(), .mean = sum / static_cast<double>(each.size())});
    result.mean += result.windows.back().mean / static_cast<double>(windows.size());
    tokens += window.size();
    done(tokens);
  }
  return result;
}

}  // namespace terrace::runner
