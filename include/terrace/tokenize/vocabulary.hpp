// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/error.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace terrace::tokenize {

using token_id = std::int32_t;

/// What a token is for; the numbers are those of GGUF's `tokenizer.ggml.token_type`.
enum class token_type : std::uint8_t {
  normal = 1,        ///< made by merging
  unknown = 2,       ///< stands for what cannot be encoded
  control = 3,       ///< special: recognised by its spelling only when asked for, not shown as text
  user_defined = 4,  ///< always recognised by its spelling, shown as text
  unused = 5,        ///< a row of the embedding without a piece
  byte = 6,
};

namespace detail {
struct text_hash {
  using is_transparent = void;
  std::size_t operator()(std::string_view text) const noexcept {
    return std::hash<std::string_view>{}(text);
  }
};
using text_index = std::unordered_map<std::string, token_id, text_hash, std::equal_to<>>;
}  // namespace detail

/// The pieces of a tokenizer as raw bytes, their kinds, and the ways back from bytes to ids.
/// Where two tokens share their bytes the lower id is found.
class vocabulary {
 public:
  /// Gives `id` its piece; an id named again takes the new piece (added tokens restate pieces of
  /// the model).
  void set(token_id id, std::string bytes, token_type type) {
    auto const slot = static_cast<std::size_t>(id);
    if (slot >= entries_.size()) { entries_.resize(slot + 1); }
    entries_[slot] = {std::move(bytes), type};
  }

  /// Builds the indexes; call once, after the last `set`.
  void finish() {
    for (token_id id = 0; id < size(); ++id) {
      auto const& entry = entries_[static_cast<std::size_t>(id)];
      if (entry.bytes.empty() || entry.type == token_type::unused) { continue; }
      bool const is_ordinary = entry.type == token_type::normal || entry.type == token_type::byte;
      (is_ordinary ? ordinary_ : spelled_).try_emplace(entry.bytes, id);
      if (is_ordinary) { longest_ordinary_ = std::max(longest_ordinary_, entry.bytes.size()); }
    }
    for (auto const& [text, id] : spelled_) {
      lengths_[static_cast<unsigned char>(text[0])].push_back(text.size());
    }
    for (auto& lengths : lengths_) {
      std::sort(lengths.begin(), lengths.end(), std::greater<>{});
      lengths.erase(std::unique(lengths.begin(), lengths.end()), lengths.end());
    }
  }

  [[nodiscard]] token_id size() const noexcept { return static_cast<token_id>(entries_.size()); }
  [[nodiscard]] bool contains(token_id id) const noexcept { return id >= 0 && id < size(); }
  /// Bytes of a piece; empty for an id outside the vocabulary, because embeddings may have more
  /// rows than pieces.
  [[nodiscard]] std::string_view piece(token_id id) const noexcept {
    return contains(id) ? std::string_view{entries_[static_cast<std::size_t>(id)].bytes}
                        : std::string_view{};
  }
  [[nodiscard]] token_type type(token_id id) const noexcept {
    return contains(id) ? entries_[static_cast<std::size_t>(id)].type : token_type::unused;
  }

  [[nodiscard]] std::size_t longest_ordinary() const noexcept { return longest_ordinary_; }
  [[nodiscard]] std::optional<token_id> find_ordinary(std::string_view bytes) const {
    return look_up(ordinary_, bytes);
  }
  /// Added tokens first, ordinary pieces second.
  [[nodiscard]] std::optional<token_id> find(std::string_view bytes) const {
    auto const spelled = look_up(spelled_, bytes);
    return spelled ? spelled : find_ordinary(bytes);
  }

  /// The longest added token that `text` starts with; control tokens only when `with_control`.
  [[nodiscard]] std::optional<token_id> match_added(std::string_view text,
                                                    bool with_control) const {
    for (std::size_t const length : lengths_[static_cast<unsigned char>(text[0])]) {
      if (length > text.size()) { continue; }
      auto const id = look_up(spelled_, text.substr(0, length));
      if (id && (with_control || type(*id) == token_type::user_defined)) { return id; }
    }
    return std::nullopt;
  }

 private:
  struct described_piece {
    std::string bytes;
    token_type type = token_type::unused;
  };
  [[nodiscard]] static std::optional<token_id> look_up(detail::text_index const& index,
                                                       std::string_view bytes) {
    auto const found = index.find(bytes);
    return found == index.end() ? std::nullopt : std::optional{found->second};
  }

  std::vector<described_piece> entries_;
  detail::text_index ordinary_;
  detail::text_index spelled_;                         // control, unknown and user-defined tokens
  std::array<std::vector<std::size_t>, 256> lengths_;  // of spelled_, by first byte, longest first
  std::size_t longest_ordinary_ = 0;
};

}  // namespace terrace::tokenize
