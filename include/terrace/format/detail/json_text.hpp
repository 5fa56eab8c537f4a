// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/error.hpp>
#include <terrace/core/units.hpp>
#include <terrace/format/byte_source.hpp>
#include <terrace/format/detail/text.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

namespace terrace::format::detail {

using json = nlohmann::json;

inline constexpr std::uint64_t json_limit_bytes = 100 * 1000 * 1000;

/// Parses `text` as one JSON value. Stricter than the library: a key that occurs twice in one
/// object is refused, because readers disagree on which of the two counts.
/// Errors: format_error naming `source` and the byte.
[[nodiscard]] inline json parse_json(std::string_view text, std::string const& source) {
  constexpr int deepest = 64;
  std::vector<std::unordered_set<std::string>> keys;
  auto const watch = [&](int depth, json::parse_event_t event, json& parsed) {
    if (depth > deepest) {
      throw format_error{source + ": the JSON is nested deeper than " + std::to_string(deepest) +
                         " levels; the file is damaged or hostile"};
    }
    if (event == json::parse_event_t::object_start) { keys.emplace_back(); }
    if (event == json::parse_event_t::object_end) { keys.pop_back(); }
    if (event == json::parse_event_t::key &&
        !keys.back().insert(parsed.get_ref<std::string const&>()).second) {
      throw format_error{source + ": the key " + in_quotes(parsed.get_ref<std::string const&>()) +
                         " occurs twice in one object; the file is damaged"};
    }
    return true;
  };
  try {
    return json::parse(text, watch);
  } catch (json::exception const& problem) {
    // The library's sentence quotes what it read last, which may be anything of any length.
    std::string_view const why = problem.what();
    throw format_error{source + ": not valid JSON " +
                       in_quotes(why.substr(std::min(why.find("] ") + 2, why.size()))) +
                       "; get the file again"};
  }
}

/// The whole text of a small file.
[[nodiscard]] inline json read_json(std::filesystem::path const& path) {
  file_source const file{path};
  if (file.size_bytes() > json_limit_bytes) {
    throw format_error{path.string() + ": " + std::to_string(file.size_bytes()) +
                       " bytes, more than the " + std::to_string(json_limit_bytes) +
                       " that are read as JSON"};
  }
  std::string text(static_cast<std::size_t>(file.size_bytes()), '\0');
  file.read(0, std::as_writable_bytes(std::span{text}));
  return parse_json(text, path.string());
}

}  // namespace terrace::format::detail
