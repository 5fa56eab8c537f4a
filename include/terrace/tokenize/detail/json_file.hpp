// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/error.hpp>
#include <terrace/core/units.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

namespace terrace::tokenize::detail {

/// Bytes of a tokenizer file; those are tens of megabytes at most, so a larger one is refused
/// unread.
[[nodiscard]] inline std::string read_text_file(std::filesystem::path const& path) {
  constexpr std::uint64_t limit = gib;
  std::error_code code;
  auto const size = std::filesystem::file_size(path, code);
  if (code) { throw io_error{path.string() + ": cannot be read: " + code.message(), code.value()}; }
  if (size > limit) {
    throw format_error{path.string() + ": " + format_size(size) +
                       " is too large for a tokenizer file; the limit is " + format_size(limit)};
  }
  std::ifstream file{path, std::ios::binary};
  std::string text(static_cast<std::size_t>(size), '\0');
  if (!file.read(text.data(), static_cast<std::streamsize>(size))) {
    throw io_error{
        path.string() + ": cannot be read to its end (" + std::to_string(size) + " bytes)", errno};
  }
  return text;
}

/// Deepest nesting of brackets in a JSON text.
[[nodiscard]] inline std::size_t nesting_depth(std::string_view text) noexcept {
  std::size_t depth = 0;
  std::size_t deepest = 0;
  bool quoted = false;
  for (std::size_t at = 0; at < text.size(); ++at) {
    char const c = text[at];
    if (c == '"') { quoted = !quoted; }
    if (quoted) {
      at += c == '\\' ? 1 : 0;
    } else if (c == '{' || c == '[') {
      deepest = std::max(deepest, ++depth);
    } else if ((c == '}' || c == ']') && depth > 0) {
      --depth;
    }
  }
  return deepest;
}

/// Nesting is bounded because whoever walks or prints a JSON value recurses.
inline void check_nesting(std::string_view text, std::string const& source) {
  constexpr std::size_t limit = 100;
  if (auto const depth = nesting_depth(text); depth > limit) {
    throw format_error{source + ": JSON nested " + std::to_string(depth) + " deep; the limit is " +
                       std::to_string(limit)};
  }
}

[[nodiscard]] inline nlohmann::json parse_json(std::string_view text, std::string const& source) {
  check_nesting(text, source);
  try {
    return nlohmann::json::parse(text);
  } catch (nlohmann::json::exception const& problem) {
    throw format_error{source + ": not valid JSON: " + problem.what()};
  }
}

/// Whether something has this name; what cannot be looked at counts as absent.
[[nodiscard]] inline bool is_there(std::filesystem::path const& path) noexcept {
  std::error_code code;
  return std::filesystem::exists(path, code);
}

/// The parsed file, or null when there is none.
[[nodiscard]] inline nlohmann::json try_json_file(std::filesystem::path const& path) {
  if (!is_there(path)) { return nullptr; }
  return parse_json(read_text_file(path), path.string());
}

/// Member `key` of an object; null when `value` is no object or has no such member.
[[nodiscard]] inline nlohmann::json const& member(nlohmann::json const& value, char const* key) {
  static nlohmann::json const nothing;
  if (!value.is_object()) { return nothing; }
  auto const found = value.find(key);
  return found == value.end() ? nothing : *found;
}

/// Member `key` when it is a boolean; a missing or null one is `otherwise`.
[[nodiscard]] inline bool flag(nlohmann::json const& value, char const* key, bool otherwise) {
  auto const& found = member(value, key);
  return found.is_boolean() ? found.get<bool>() : otherwise;
}

/// Member `key` when it is a string.
[[nodiscard]] inline std::optional<std::string> text_member(nlohmann::json const& value,
                                                            char const* key) {
  auto const& found = member(value, key);
  return found.is_string() ? std::optional{found.get<std::string>()} : std::nullopt;
}

}  // namespace terrace::tokenize::detail
