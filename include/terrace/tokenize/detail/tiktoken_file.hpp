// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/error.hpp>
#include <terrace/tokenize/detail/json_file.hpp>
#include <terrace/tokenize/detail/tokenizer_json.hpp>
#include <terrace/tokenize/tokenizer_parts.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace terrace::tokenize::detail {

/// Standard base64 with padding; nothing for anything else.
[[nodiscard]] inline std::optional<std::string> decode_base64(std::string_view text) {
  static constexpr std::string_view alphabet =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  if (text.empty() || text.size() % 4 != 0) { return std::nullopt; }
  std::size_t const padding = text.ends_with("==") ? 2 : text.ends_with('=') ? 1 : 0;
  std::string bytes;
  std::uint32_t bits = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    auto const digit = i < text.size() - padding ? alphabet.find(text[i]) : 0;
    if (digit == std::string_view::npos) { return std::nullopt; }
    bits = (bits << 6U) | static_cast<std::uint32_t>(digit);
    if (i % 4 == 3) {
      for (unsigned shift : {16U, 8U, 0U}) { bytes += static_cast<char>((bits >> shift) & 0xFFU); }
      bits = 0;
    }
  }
  bytes.resize(bytes.size() - padding);
  return bytes;
}

/// The pieces of a tiktoken file by rank: one "base64 rank" a line, ranks 0 to n-1 in any order.
[[nodiscard]] inline std::vector<std::string> parse_tiktoken(std::string_view text,
                                                             std::string const& source) {
  std::vector<std::pair<std::uint32_t, std::string>> ranked;
  for (std::size_t number = 1; !text.empty(); ++number) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (line.ends_with('\r')) { line.remove_suffix(1); }
    if (line.empty()) { continue; }
    auto const space = line.find(' ');
    auto bytes = decode_base64(line.substr(0, space));
    std::string_view const digits =
        space == std::string_view::npos ? std::string_view{} : line.substr(space + 1);
    std::uint32_t rank = 0;
    auto const [end, code] = std::from_chars(digits.data(), digits.data() + digits.size(), rank);
    if (!bytes || digits.empty() || code != std::errc{} || end != digits.data() + digits.size()) {
      throw format_error{source + ": line " + std::to_string(number) +
                         " is not a base64 piece and its rank"};
    }
    ranked.emplace_back(rank, *std::move(bytes));
  }
  std::sort(ranked.begin(), ranked.end());
  std::vector<std::string> pieces;
  for (auto& [rank, bytes] : ranked) {
    if (rank != pieces.size()) {
      throw format_error{source + ": rank " + std::to_string(pieces.size()) +
                         " is missing or rank " + std::to_string(rank) +
                         " is used twice; ranks must count from 0 without gaps"};
    }
    pieces.push_back(std::move(bytes));
  }
  if (pieces.empty()) { throw format_error{source + ": the file has no pieces"}; }
  return pieces;
}

/// Reads tiktoken.model and the added tokens of tokenizer_config.json. 256 ids follow the ranks for
/// special tokens; those without a name are spelled `<|reserved_token_ID|>`.
[[nodiscard]] inline tokenizer_parts parse_tiktoken_model(std::string_view text,
                                                          nlohmann::json const& config,
                                                          std::string const& source) {
  constexpr token_id special_slots = 256;
  tokenizer_parts parts;
  parts.source = source;
  parts.family = find_family("kimi-k2");
  parts.whole_piece_first = true;
  token_id rank = 0;
  for (auto& bytes : parse_tiktoken(text, source)) {
    parts.pieces.set(rank++, std::move(bytes), token_type::normal);
  }
  for (token_id id = rank; id < rank + special_slots; ++id) {
    parts.pieces.set(id, "<|reserved_token_" + std::to_string(id) + "|>", token_type::control);
  }
  for (auto const& [key, entry] : member(config, "added_tokens_decoder").items()) {
    token_id id = -1;
    auto const [end, code] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (code != std::errc{} || end != key.data() + key.size() || id < rank ||
        id >= rank + special_slots) {
      throw format_error{source + ": tokenizer_config.json names the special token `" + key +
                         "`; expected an id from " + std::to_string(rank) + " to " +
                         std::to_string(rank + special_slots - 1)};
    }
    set_added_token(parts.pieces, id, entry, source);
  }
  parts.pieces.finish();
  return parts;
}

}  // namespace terrace::tokenize::detail
