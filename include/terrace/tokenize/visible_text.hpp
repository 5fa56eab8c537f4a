// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/tokenize/chat.hpp>
#include <terrace/tokenize/tokenizer.hpp>

#include <string_view>

namespace terrace::tokenize {

/// What a reader of a generated text should see of it, token by token: no control tokens, and of
/// Kimi K3's tags not their names either. Borrows the tokenizer.
class visible_text {
 public:
  explicit visible_text(tokenizer const& tokens) : tokens_{&tokens} {
    if (!speaks_xtml(tokens)) { return; }
    open_ = tokens.find("<|open|>").value_or(none);
    close_ = tokens.find("<|close|>").value_or(none);
    end_of_tag_ = tokens.find("<|sep|>").value_or(none);
  }

  /// Bytes of the next token; not always UTF-8 on their own.
  [[nodiscard]] std::string_view push(token_id id) noexcept {
    if (id == open_ || id == close_) { in_tag_ = true; }
    if (id == end_of_tag_) { in_tag_ = false; }
    return in_tag_ ? std::string_view{} : tokens_->visible_piece(id);
  }

 private:
  static constexpr token_id none = -1;

  tokenizer const* tokens_;
  token_id open_ = none, close_ = none, end_of_tag_ = none;
  bool in_tag_ = false;
};

}  // namespace terrace::tokenize
