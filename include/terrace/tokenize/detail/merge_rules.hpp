// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/error.hpp>
#include <terrace/tokenize/bpe.hpp>
#include <terrace/tokenize/detail/byte_letters.hpp>
#include <terrace/tokenize/vocabulary.hpp>

#include <cstddef>
#include <string>
#include <string_view>

namespace terrace::tokenize::detail {

/// One merge of the file, by ids. Both sides and their join must be ordinary tokens.
[[nodiscard]] inline bpe_merge resolve_merge(vocabulary const& pieces,
                                             std::string_view left,
                                             std::string_view right,
                                             std::size_t number,
                                             std::string const& source) {
  auto const find = [&](std::string const& bytes) {
    auto const id = pieces.find_ordinary(bytes);
    if (!id) {
      throw format_error{source + ": merge " + std::to_string(number) + " (`" +
                         to_valid_utf8(left) + " " + to_valid_utf8(right) +
                         "`) needs a token that the vocabulary does not have; the file is damaged"};
    }
    return *id;
  };
  std::string const first = ordinary_bytes(left);
  std::string const second = ordinary_bytes(right);
  return {find(first), find(second), find(first + second)};
}

/// The same from the spelling "left right".
[[nodiscard]] inline bpe_merge resolve_merge(vocabulary const& pieces,
                                             std::string_view rule,
                                             std::size_t number,
                                             std::string const& source) {
  auto const space = rule.find(' ');
  if (space == 0 || space == std::string_view::npos || space + 1 == rule.size()) {
    throw format_error{source + ": merge " + std::to_string(number) + " is `" +
                       to_valid_utf8(rule) + "`, not two pieces with a space between them"};
  }
  return resolve_merge(pieces, rule.substr(0, space), rule.substr(space + 1), number, source);
}

}  // namespace terrace::tokenize::detail
