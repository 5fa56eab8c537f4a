// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/tokenize/bpe.hpp>
#include <terrace/tokenize/pre_tokenizers.hpp>
#include <terrace/tokenize/vocabulary.hpp>

#include <optional>
#include <string>
#include <vector>

namespace terrace::tokenize {

/// Everything a model file says about its tokenizer, whatever the container. Readers fill it,
/// `tokenizer` runs it.
struct tokenizer_parts {
  std::string source;  ///< file or folder, for error sentences
  vocabulary pieces;   ///< finished
  pre_tokenizer_family const* family = nullptr;
  std::vector<bpe_merge> merges;  ///< best first; not used when the family merges by rank
  bool whole_piece_first = false;
  bool normalise_nfc = false;
  std::optional<token_id> unknown;
  std::optional<token_id> bos;
  bool add_bos = false;
  std::optional<token_id> eos;
  std::vector<token_id> end_ids;  ///< what the file names as the end of a text, turn or message
  std::string chat_template;      ///< empty when the file has none
};

}  // namespace terrace::tokenize
