// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace terrace::runner {

/// A whole text as one decimal number; nothing for anything else ("", "0x10", " 7", "7 ").
template <class Number>
[[nodiscard]] std::optional<Number> parse_number(std::string_view text) {
  Number value{};
  auto const* const last = text.data() + text.size();
  auto const [end, code] = std::from_chars(text.data(), last, value);
  if (code != std::errc{} || end != last || text.empty()) { return std::nullopt; }
  return value;
}

/// "1,2,3" with any spaces around the commas; nothing when an item is no id.
[[nodiscard]] inline std::optional<std::vector<std::int32_t>> parse_ids(std::string_view text) {
  std::vector<std::int32_t> ids;
  while (true) {
    auto const comma = text.find(',');
    auto item = text.substr(0, comma);
    while (item.starts_with(' ')) { item.remove_prefix(1); }
    while (item.ends_with(' ')) { item.remove_suffix(1); }
    auto const id = parse_number<std::int32_t>(item);
    if (!id || *id < 0) { return std::nullopt; }
    ids.push_back(*id);
    if (comma == std::string_view::npos) { return ids; }
    text.remove_prefix(comma + 1);
  }
}

}  // namespace terrace::runner
