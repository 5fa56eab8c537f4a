// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/error.hpp>
#include <terrace/core/metadata.hpp>
#include <terrace/tokenize/bpe.hpp>
#include <terrace/tokenize/folder_tokenizer.hpp>
#include <terrace/tokenize/gguf_tokenizer.hpp>
#include <terrace/tokenize/nfc.hpp>
#include <terrace/tokenize/pre_tokenizers.hpp>
#include <terrace/tokenize/rank_bpe.hpp>
#include <terrace/tokenize/segment.hpp>
#include <terrace/tokenize/tokenizer_parts.hpp>
#include <terrace/tokenize/utf8.hpp>
#include <terrace/tokenize/vocabulary.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace terrace::tokenize {
namespace detail {

/// Control tokens that end a turn, message or document in the families terrace runs. Files often
/// name only one of them.
inline constexpr std::array<std::string_view, 7> end_spellings{"<|eot_id|>",
                                                               "<|eom_id|>",
                                                               "<|end_of_text|>",
                                                               "<|im_end|>",
                                                               "<|endoftext|>",
                                                               "<|end_of_msg|>",
                                                               "[e~["};

[[nodiscard]] inline std::vector<token_id> all_end_ids(tokenizer_parts const& parts) {
  std::vector<token_id> ids = parts.end_ids;
  for (auto const spelling : end_spellings) {
    auto const id = parts.pieces.find(spelling);
    if (id && parts.pieces.type(*id) == token_type::control) { ids.push_back(*id); }
  }
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

using merger = std::variant<bpe, rank_bpe>;

[[nodiscard]] inline merger make_merger(tokenizer_parts const& parts) {
  token_id const unknown = parts.unknown.value_or(byte_tokens::missing);
  if (parts.family->merges_by_rank) { return rank_bpe{parts.pieces, unknown}; }
  return bpe{parts.pieces,
             parts.merges,
             {.whole_piece_first = parts.whole_piece_first, .unknown = unknown}};
}

}  // namespace detail

/// Text to token ids and back. Move-only; const calls are safe from several threads.
class tokenizer {
 public:
  explicit tokenizer(tokenizer_parts parts)
      : parts_{std::make_unique<tokenizer_parts const>(std::move(parts))},
        splitter_{*parts_->family},
        merger_{detail::make_merger(*parts_)},
        end_ids_{detail::all_end_ids(*parts_)} {
    if (parts_->add_bos && !parts_->bos) {
      throw format_error{parts_->source +
                         ": texts are to begin with a BOS token, but the file names none"};
    }
  }
  /// From the `tokenizer.*` keys of a GGUF file.
  [[nodiscard]] static tokenizer from_metadata(metadata const& file) {
    return tokenizer{gguf_tokenizer(file)};
  }
  /// From the tokenizer files of a safetensors folder; `architecture` in GGUF spelling, empty when
  /// not known.
  [[nodiscard]] static tokenizer from_folder(std::filesystem::path const& folder,
                                             std::string_view architecture = {}) {
    return tokenizer{folder_tokenizer(folder, architecture)};
  }

  /// Token ids of `text`, without a BOS. User-defined tokens are recognised by their spelling
  /// always, control tokens only with `parse_special`; the longest wins. Bytes that are not UTF-8
  /// are encoded as they are.
  /// Cost: linear in the text, times log n within one piece of n bytes.
  [[nodiscard]] std::vector<token_id> encode(std::string_view text, bool parse_special) const {
    std::vector<token_id> ids;
    merge_scratch scratch;
    std::size_t plain = 0;
    for (std::size_t at = 0; at < text.size();) {
      auto const added = parts_->pieces.match_added(text.substr(at), parse_special);
      if (!added) {
        ++at;
        continue;
      }
      encode_plain(text.substr(plain, at - plain), scratch, ids);
      ids.push_back(*added);
      at += parts_->pieces.piece(*added).size();
      plain = at;
    }
    encode_plain(text.substr(plain), scratch, ids);
    return ids;
  }

  /// The same piece by piece, each as its kind says.
  [[nodiscard]] std::vector<token_id> encode(std::span<segment const> pieces) const {
    std::vector<token_id> ids;
    for (auto const& one : pieces) {
      auto const part = encode(one.text, one.control);
      ids.insert(ids.end(), part.begin(), part.end());
    }
    return ids;
  }

  /// Bytes of one token, as spelled; empty for ids without a piece. Not always UTF-8 on its own.
  [[nodiscard]] std::string_view piece(token_id id) const noexcept {
    return parts_->pieces.piece(id);
  }
  /// The same, but empty for control tokens: what a reader of generated text should see.
  [[nodiscard]] std::string_view visible_piece(token_id id) const noexcept {
    return is_control(id) ? std::string_view{} : piece(id);
  }
  /// Bytes of a sequence, control tokens spelled out. `to_valid_utf8` or `utf8_stream` makes text
  /// of them.
  [[nodiscard]] std::string decode(std::span<token_id const> ids) const {
    std::string bytes;
    for (token_id const id : ids) { bytes += piece(id); }
    return bytes;
  }

  /// Control tokens steer the model and are no part of a text; user-defined ones ("<think>") are.
  [[nodiscard]] bool is_control(token_id id) const noexcept {
    auto const type = parts_->pieces.type(id);
    return type == token_type::control || type == token_type::unknown;
  }
  [[nodiscard]] bool is_end(token_id id) const noexcept {
    return std::binary_search(end_ids_.begin(), end_ids_.end(), id);
  }
  /// Tokens at which generation stops, ascending.
  [[nodiscard]] std::vector<token_id> const& end_ids() const noexcept { return end_ids_; }
  [[nodiscard]] std::optional<token_id> bos() const noexcept { return parts_->bos; }
  /// Whether the file asks for a BOS in front of a text.
  [[nodiscard]] bool add_bos() const noexcept { return parts_->add_bos; }
  /// The token that the file calls the end of a sequence; generation may stop at others.
  [[nodiscard]] std::optional<token_id> eos() const noexcept { return parts_->eos; }
  /// Ids run from 0 to here; embeddings may have more rows.
  [[nodiscard]] int vocab_size() const noexcept { return parts_->pieces.size(); }
  /// The id of the token with this spelling.
  [[nodiscard]] std::optional<token_id> find(std::string_view text) const {
    return parts_->pieces.find(text);
  }
  /// The Jinja source of the file's chat template; empty when it has none.
  [[nodiscard]] std::string const& chat_template() const noexcept { return parts_->chat_template; }
  /// File or folder it was read from.
  [[nodiscard]] std::string const& source() const noexcept { return parts_->source; }

 private:
  void encode_plain(std::string_view text,
                    merge_scratch& scratch,
                    std::vector<token_id>& ids) const {
    if (text.empty()) { return; }
    std::string const normal = parts_->normalise_nfc ? normalise(text) : std::string{};
    auto const pieces = splitter_.split(parts_->normalise_nfc ? std::string_view{normal} : text);
    std::visit(
        [&](auto const& merger) {
          for (auto const part : pieces) { merger.encode(part, scratch, ids); }
        },
        merger_);
  }

  /// NFC of the well-formed stretches; other bytes stay.
  [[nodiscard]] static std::string normalise(std::string_view text) {
    std::string result;
    while (!text.empty()) {
      std::size_t const good = valid_utf8_prefix(text);
      result += nfc(text.substr(0, good));
      text.remove_prefix(good);
      if (text.empty()) { break; }
      std::size_t const bad = read_utf8(text).bytes;
      result += text.substr(0, bad);
      text.remove_prefix(bad);
    }
    return result;
  }

  std::unique_ptr<tokenizer_parts const> parts_;  // the merger borrows from it
  pre_tokenizer splitter_;
  detail::merger merger_;
  std::vector<token_id> end_ids_;
};

}  // namespace terrace::tokenize
