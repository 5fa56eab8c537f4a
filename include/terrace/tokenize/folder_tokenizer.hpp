// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/error.hpp>
#include <terrace/tokenize/detail/json_file.hpp>
#include <terrace/tokenize/detail/tiktoken_file.hpp>
#include <terrace/tokenize/detail/tokenizer_json.hpp>
#include <terrace/tokenize/tokenizer_parts.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace terrace::tokenize {
namespace detail {

/// A special token of tokenizer_config.json: a string, or an object with `content`.
[[nodiscard]] inline std::optional<token_id> named_token(nlohmann::json const& config,
                                                         char const* key,
                                                         tokenizer_parts const& parts) {
  auto text = text_member(config, key);
  if (!text) { text = text_member(member(config, key), "content"); }
  if (!text) { return std::nullopt; }
  auto const id = parts.pieces.find(*text);
  if (!id) {
    throw format_error{parts.source + ": `" + key + "` is `" + *text +
                       "`, which is no token of the vocabulary"};
  }
  return id;
}

/// Token ids under `key`: one number, a list of them, or nothing.
[[nodiscard]] inline std::vector<token_id> listed_ids(nlohmann::json const& config,
                                                      char const* key,
                                                      tokenizer_parts const& parts) {
  std::vector<token_id> ids;
  auto const& value = member(config, key);
  if (value.is_null()) { return ids; }
  for (auto const& id : value.is_array() ? value : nlohmann::json::array({value})) {
    bool const known = id.is_number_integer() && id.get<std::int64_t>() >= 0 &&
                       id.get<std::int64_t>() < parts.pieces.size();
    if (!known) {
      throw format_error{parts.source + ": `" + key + "` is " + id.dump() +
                         ", but the vocabulary has " + std::to_string(parts.pieces.size()) +
                         " tokens"};
    }
    ids.push_back(id.get<token_id>());
  }
  return ids;
}

/// The chat template: a file of its own in newer folders, else a string or a list of named ones in
/// the configuration.
[[nodiscard]] inline std::string folder_chat_template(std::filesystem::path const& folder,
                                                      nlohmann::json const& config) {
  if (is_there(folder / "chat_template.jinja")) {
    return read_text_file(folder / "chat_template.jinja");
  }
  auto const& value = member(config, "chat_template");
  if (value.is_array()) {
    for (auto const& entry : value) {
      if (text_member(entry, "name") == "default") {
        return text_member(entry, "template").value_or("");
      }
    }
  }
  return text_member(config, "chat_template").value_or("");
}

/// Two descriptions of one vocabulary must not differ: the ids of every text would depend on which
/// is read.
inline void check_same_pieces(tokenizer_parts const& ranks, tokenizer_parts const& json) {
  token_id const count = std::max(ranks.pieces.size(), json.pieces.size());
  for (token_id id = 0; id < count; ++id) {
    if (ranks.pieces.piece(id) != json.pieces.piece(id)) {
      throw format_error{ranks.source + " and " + json.source + " disagree about token " +
                         std::to_string(id) + " (`" + to_valid_utf8(ranks.pieces.piece(id)) +
                         "` and `" + to_valid_utf8(json.pieces.piece(id)) +
                         "`); remove the one that does not belong to the model"};
    }
  }
}

[[nodiscard]] inline tokenizer_parts read_pieces(std::filesystem::path const& folder,
                                                 std::string_view architecture,
                                                 nlohmann::json const& config) {
  auto const ranks = folder / "tiktoken.model";
  auto const json = folder / "tokenizer.json";
  bool const has_json = is_there(json);
  if (!is_there(ranks)) {
    if (!has_json) {
      throw format_error{
          folder.string() +
          ": neither tokenizer.json nor tiktoken.model is there; text needs one of them"};
    }
    return parse_tokenizer_json(read_text_file(json), json.string());
  }
  if (!architecture.empty() && architecture != "deepseek2" && !architecture.starts_with("kimi")) {
    throw not_supported{
        ranks.string() + ": how a `" + std::string{architecture} +
        "` model splits text is not in a tiktoken file; terrace reads those of Kimi models"};
  }
  auto parts = parse_tiktoken_model(read_text_file(ranks), config, ranks.string());
  if (has_json) {
    check_same_pieces(parts, parse_tokenizer_json(read_text_file(json), json.string()));
  }
  return parts;
}

}  // namespace detail

/// Reads the tokenizer of a safetensors folder: tiktoken.model where there is one, else
/// tokenizer.json; the special tokens and the chat template from tokenizer_config.json, more end
/// tokens from generation_config.json and config.json. `architecture` in GGUF spelling; empty when
/// not known.
/// Errors: format_error, io_error, not_supported, all naming the file.
[[nodiscard]] inline tokenizer_parts folder_tokenizer(std::filesystem::path const& folder,
                                                      std::string_view architecture) {
  auto const config = detail::try_json_file(folder / "tokenizer_config.json");
  auto const model = detail::try_json_file(folder / "config.json");
  auto const generation = detail::try_json_file(folder / "generation_config.json");
  auto parts = detail::read_pieces(folder, architecture, config);
  auto const map = detail::try_json_file(folder / "special_tokens_map.json");
  auto const named = [&](char const* key) {
    auto const id = detail::named_token(config, key, parts);
    return id ? id : detail::named_token(map, key, parts);
  };
  if (!parts.unknown) { parts.unknown = named("unk_token"); }
  if (auto const bos = named("bos_token")) {
    parts.bos = bos;
  } else if (auto const ids = detail::listed_ids(model, "bos_token_id", parts);
             !parts.bos && !ids.empty()) {
    parts.bos = ids.front();
  }
  parts.add_bos = detail::flag(config, "add_bos_token", parts.add_bos);
  parts.eos = named("eos_token");
  for (auto const& source : {generation, model}) {
    auto const ids = detail::listed_ids(source, "eos_token_id", parts);
    parts.end_ids.insert(parts.end_ids.end(), ids.begin(), ids.end());
  }
  // Kimi K3's tokenizer names an end that its generation does not stop at: what generation says
  // goes first.
  if (parts.end_ids.empty() && parts.eos) { parts.end_ids.push_back(*parts.eos); }
  parts.chat_template = detail::folder_chat_template(folder, config);
  return parts;
}

}  // namespace terrace::tokenize
