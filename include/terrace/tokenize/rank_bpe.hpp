// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/tokenize/bpe.hpp>
#include <terrace/tokenize/detail/merge_pairs.hpp>
#include <terrace/tokenize/vocabulary.hpp>

#include <cstdint>
#include <string_view>
#include <vector>

namespace terrace::tokenize {

/// Byte-pair encoding without a merge list, as tiktoken does it: the adjacent pair whose joined
/// bytes are the token of the lowest id merges first. A piece that is a token needs no merging.
/// Borrows the vocabulary, whose ordinary ids are the ranks.
class rank_bpe {
 public:
  explicit rank_bpe(vocabulary const& pieces, token_id unknown = detail::byte_tokens::missing)
      : pieces_{&pieces}, bytes_{pieces, unknown} {}

  /// Appends the tokens of one piece.
  void encode(std::string_view piece, merge_scratch& scratch, std::vector<token_id>& ids) const {
    if (auto const whole = pieces_->find_ordinary(piece)) {
      ids.push_back(*whole);
      return;
    }
    bytes_.split(piece, scratch);
    detail::merge_pairs(
        scratch, [this, piece](merge_symbol const& left, merge_symbol const& right) {
          std::size_t const length = right.end - left.begin;
          if (length > pieces_->longest_ordinary()) { return merge_result{}; }
          auto const joined = pieces_->find_ordinary(piece.substr(left.begin, length));
          return joined ? merge_result{static_cast<std::uint32_t>(*joined), *joined}
                        : merge_result{};
        });
    detail::append_survivors(scratch, ids);
  }

 private:
  vocabulary const* pieces_;
  detail::byte_tokens bytes_;
};

}  // namespace terrace::tokenize
