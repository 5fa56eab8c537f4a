// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/error.hpp>
#include <terrace/tokenize/detail/merge_pairs.hpp>
#include <terrace/tokenize/vocabulary.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace terrace::tokenize {
namespace detail {

/// Ids of the 256 one-byte pieces. A byte without a piece becomes `unknown`, or is refused when
/// there is none: text is never dropped.
class byte_tokens {
 public:
  static constexpr token_id missing = -1;

  byte_tokens(vocabulary const& pieces, token_id unknown) {
    for (unsigned byte = 0; byte < 256; ++byte) {
      char const text = static_cast<char>(byte);
      ids_[byte] = pieces.find_ordinary({&text, 1}).value_or(unknown);
    }
  }

  /// One node per byte of `piece`.
  void split(std::string_view piece, merge_scratch& scratch) const {
    if (piece.size() >= merge_scratch::none) {
      throw contract_error{"a text above 4 GiB cannot be tokenised"};
    }
    scratch.nodes.resize(piece.size());
    auto const count = static_cast<std::uint32_t>(piece.size());
    for (std::uint32_t at = 0; at < count; ++at) {
      token_id const id = ids_[static_cast<unsigned char>(piece[at])];
      if (id == missing) { refuse(static_cast<unsigned char>(piece[at])); }
      scratch.nodes[at] = {.symbol = {id, at, at + 1},
                           .previous = at == 0 ? merge_scratch::none : at - 1,
                           .next = at + 1 == count ? merge_scratch::none : at + 1,
                           .with_next = {}};
    }
  }

 private:
  [[noreturn]] static void refuse(unsigned byte) {
    throw format_error{"the vocabulary has no token for byte " + std::to_string(byte) +
                       " and no unknown token; this text cannot be encoded with it"};
  }
  std::array<token_id, 256> ids_{};
};

inline void append_survivors(merge_scratch const& scratch, std::vector<token_id>& ids) {
  if (scratch.nodes.empty()) { return; }
  for (std::uint32_t at = 0; at != merge_scratch::none; at = scratch.nodes[at].next) {
    ids.push_back(scratch.nodes[at].symbol.id);
  }
}

}  // namespace detail

/// One rule of a merge list; its place in the list is its rank.
struct bpe_merge {
  token_id left = 0;
  token_id right = 0;
  token_id merged = 0;
};

/// Byte-pair encoding by a list of merges.
/// Borrows the vocabulary.
/// Source: Sennrich et al. 2016; bytes as the base alphabet as in GPT-2.
class bpe {
 public:
  struct options {
    bool whole_piece_first = false;  ///< a piece that is a token needs no merging ("ignore_merges")
    token_id unknown = detail::byte_tokens::missing;
  };

  bpe(vocabulary const& pieces, std::vector<bpe_merge> const& merges, options chosen)
      : pieces_{&pieces},
        bytes_{pieces, chosen.unknown},
        whole_piece_first_{chosen.whole_piece_first} {
    merges_.reserve(merges.size());
    for (std::uint32_t rank = 0; rank < merges.size(); ++rank) {
      auto const& merge = merges[rank];
      merges_.try_emplace(key(merge.left, merge.right), merge_result{rank, merge.merged});
    }
  }

  /// Appends the tokens of one piece.
  void encode(std::string_view piece, merge_scratch& scratch, std::vector<token_id>& ids) const {
    if (whole_piece_first_) {
      if (auto const whole = pieces_->find_ordinary(piece)) {
        ids.push_back(*whole);
        return;
      }
    }
    bytes_.split(piece, scratch);
    detail::merge_pairs(scratch, [this](merge_symbol const& left, merge_symbol const& right) {
      auto const found = merges_.find(key(left.id, right.id));
      return found == merges_.end() ? merge_result{} : found->second;
    });
    detail::append_survivors(scratch, ids);
  }

 private:
  [[nodiscard]] static std::uint64_t key(token_id left, token_id right) noexcept {
    return (std::uint64_t{static_cast<std::uint32_t>(left)} << 32U) |
           static_cast<std::uint32_t>(right);
  }

  vocabulary const* pieces_;
  detail::byte_tokens bytes_;
  std::unordered_map<std::uint64_t, merge_result> merges_;
  bool whole_piece_first_;
};

}  // namespace terrace::tokenize
