// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/error.hpp>
#include <terrace/core/metadata.hpp>
#include <terrace/tokenize/detail/byte_letters.hpp>
#include <terrace/tokenize/detail/merge_rules.hpp>
#include <terrace/tokenize/tokenizer_parts.hpp>

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace terrace::tokenize {
namespace detail {

[[nodiscard]] inline token_type gguf_token_type(metadata const& file,
                                                std::int64_t number,
                                                std::size_t id) {
  if (number < 0 || number > 6) {
    throw format_error{file.source() + ": token " + std::to_string(id) + " has type " +
                       std::to_string(number) + "; `tokenizer.ggml.token_type` goes from 0 to 6"};
  }
  return number == 0 ? token_type::normal : static_cast<token_type>(number);
}

/// Bytes of one entry of `tokenizer.ggml.tokens`; byte tokens are spelled `<0x0A>`.
[[nodiscard]] inline std::string gguf_piece(std::string_view text, token_type type) {
  if (type == token_type::byte && text.size() == 6 && text.starts_with("<0x") &&
      text.ends_with('>')) {
    unsigned byte = 0;
    auto const [end, code] = std::from_chars(text.data() + 3, text.data() + 5, byte, 16);
    if (code == std::errc{} && end == text.data() + 5) {
      return std::string(1, static_cast<char>(byte));
    }
  }
  if (type == token_type::normal || type == token_type::byte) { return ordinary_bytes(text); }
  return type == token_type::unused ? std::string{} : std::string{text};
}

[[nodiscard]] inline vocabulary gguf_vocabulary(metadata const& file) {
  auto const* tokens = file.try_strings("tokenizer.ggml.tokens");
  if (tokens == nullptr || tokens->empty()) {
    throw format_error{
        file.source() +
        ": the key `tokenizer.ggml.tokens` is missing or empty; the file has no vocabulary"};
  }
  auto const types = file.try_integers("tokenizer.ggml.token_type");
  if (types && types->size() != tokens->size()) {
    throw format_error{file.source() + ": `tokenizer.ggml.token_type` has " +
                       std::to_string(types->size()) + " entries for " +
                       std::to_string(tokens->size()) + " tokens"};
  }
  if (tokens->size() > static_cast<std::size_t>(std::numeric_limits<token_id>::max())) {
    throw format_error{file.source() + ": " + std::to_string(tokens->size()) +
                       " tokens are more than ids can number"};
  }
  vocabulary pieces;
  for (std::size_t id = 0; id < tokens->size(); ++id) {
    auto const type = types ? gguf_token_type(file, (*types)[id], id) : token_type::normal;
    pieces.set(static_cast<token_id>(id), gguf_piece((*tokens)[id], type), type);
  }
  pieces.finish();
  return pieces;
}

/// A key that holds a token id, checked against the vocabulary.
[[nodiscard]] inline std::optional<token_id> gguf_id(metadata const& file,
                                                     vocabulary const& pieces,
                                                     std::string_view key) {
  auto const id = file.try_unsigned(key);
  if (!id) { return std::nullopt; }
  if (*id >= static_cast<std::uint64_t>(pieces.size())) {
    throw format_error{file.source() + ": the key `" + std::string{key} + "` is " +
                       std::to_string(*id) + ", but the vocabulary has " +
                       std::to_string(pieces.size()) + " tokens"};
  }
  return static_cast<token_id>(*id);
}

[[nodiscard]] inline pre_tokenizer_family const& gguf_family(metadata const& file) {
  std::string const model = file.get_string("tokenizer.ggml.model");
  if (model != "gpt2") {
    throw not_supported{file.source() + ": the tokenizer model `" + model +
                        "` is not supported; terrace reads byte-level BPE (`gpt2`)"};
  }
  std::string const name = file.get_string("tokenizer.ggml.pre");
  auto const* family = find_family(name);
  if (family == nullptr) {
    std::string known;
    for (auto const& entry : pre_tokenizer_families) {
      known += (known.empty() ? "" : ", ") + std::string{entry.name};
    }
    throw not_supported{file.source() + ": the pre-tokenizer `" + name +
                        "` is not supported; terrace knows " + known};
  }
  return *family;
}

}  // namespace detail

/// Reads the `tokenizer.*` keys of a GGUF file.
/// Errors: not_supported for a tokenizer model or pre-tokenizer terrace does not know; format_error for broken keys.
[[nodiscard]] inline tokenizer_parts gguf_tokenizer(metadata const& file) {
  tokenizer_parts parts;
  parts.source = file.source();
  parts.family = &detail::gguf_family(file);
  parts.pieces = detail::gguf_vocabulary(file);
  parts.whole_piece_first = parts.family->whole_piece_first;
  auto const* rules = file.try_strings("tokenizer.ggml.merges");
  if (!parts.family->merges_by_rank) {
    if (rules == nullptr) {
      throw format_error{
          file.source() +
          ": the key `tokenizer.ggml.merges` is missing; without merges no text can be encoded"};
    }
    parts.merges.reserve(rules->size());
    for (std::size_t i = 0; i < rules->size(); ++i) {
      parts.merges.push_back(detail::resolve_merge(parts.pieces, (*rules)[i], i, parts.source));
    }
  }
  auto const id = [&](std::string_view key) { return detail::gguf_id(file, parts.pieces, key); };
  parts.normalise_nfc = file.try_bool("tokenizer.ggml.normalizer.nfc").value_or(false);
  parts.unknown = id("tokenizer.ggml.unknown_token_id");
  parts.bos = id("tokenizer.ggml.bos_token_id");
  parts.add_bos = file.try_bool("tokenizer.ggml.add_bos_token")
                      .value_or(parts.family->adds_bos && parts.bos.has_value());
  parts.eos = id("tokenizer.ggml.eos_token_id");
  for (auto const end :
       {parts.eos, id("tokenizer.ggml.eot_token_id"), id("tokenizer.ggml.eom_token_id")}) {
    if (end) { parts.end_ids.push_back(*end); }
  }
  parts.chat_template = file.try_string("tokenizer.chat_template").value_or("");
  return parts;
}

}  // namespace terrace::tokenize
