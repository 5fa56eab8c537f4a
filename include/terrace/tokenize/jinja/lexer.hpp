// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/error.hpp>
#include <terrace/tokenize/jinja/text.hpp>
#include <terrace/tokenize/utf8.hpp>

#include <array>
#include <cctype>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace terrace::tokenize::jinja {

enum class token_kind : std::uint8_t {
  text,
  output_begin,
  output_end,
  block_begin,
  block_end,
  name,
  string,
  integer,
  real,
  sign,
  end
};

struct token {
  token_kind kind = token_kind::end;
  int line = 1;
  std::string text;  ///< decoded for strings
};

/// Cuts a template into tokens, with the white space rules that chat templates are written for:
/// `trim_blocks` and `lstrip_blocks` are on, one line end at the end of the template is dropped,
/// line ends become LF.
/// Errors: format_error with the line for what is not a token or not closed.
class lexer {
 public:
  explicit lexer(std::string_view source) : source_{with_plain_line_ends(source)} {}

  [[nodiscard]] std::vector<token> run() {
    while (at_ < source_.size()) { read_text_and_tag(); }
    add(token_kind::end, "");
    return std::move(tokens_);
  }

 private:
  [[nodiscard]] static std::string with_plain_line_ends(std::string_view source) {
    std::string text;
    text.reserve(source.size());
    for (std::size_t at = 0; at < source.size(); ++at) {
      if (source[at] == '\r' && source.substr(at + 1).starts_with('\n')) { continue; }
      text += source[at] == '\r' ? '\n' : source[at];
    }
    if (text.ends_with('\n')) { text.pop_back(); }
    return text;
  }

  [[noreturn]] void fail(std::string const& what) const {
    throw format_error{"chat template, line " + std::to_string(line_) + ": " + what};
  }
  void add(token_kind kind, std::string text) { tokens_.push_back({kind, line_, std::move(text)}); }
  [[nodiscard]] std::string_view rest() const { return std::string_view{source_}.substr(at_); }
  void advance(std::size_t bytes) {
    for (std::size_t i = 0; i < bytes; ++i) { line_ += source_[at_ + i] == '\n' ? 1 : 0; }
    at_ += bytes;
  }

  /// Text up to the next tag, then the tag.
  void read_text_and_tag() {
    std::string_view const ahead = rest();
    std::size_t begin = 0;
    for (;; ++begin) {
      begin = ahead.find('{', begin);
      if (begin == std::string_view::npos || begin + 1 >= ahead.size()) {
        add(token_kind::text, std::string{ahead});
        advance(ahead.size());
        return;
      }
      if (std::string_view{"{%#"}.find(ahead[begin + 1]) != std::string_view::npos) { break; }
    }
    char const type = ahead[begin + 1];
    char const mark = begin + 2 < ahead.size() ? ahead[begin + 2] : ' ';
    add_text(ahead.substr(0, begin), type, mark);
    advance(begin + (mark == '-' || mark == '+' ? 3 : 2));
    if (type == '#') {
      skip_comment();
    } else if (type == '%') {
      if (!read_raw()) { read_tag(token_kind::block_begin, token_kind::block_end, "%}"); }
    } else {
      read_tag(token_kind::output_begin, token_kind::output_end, "}}");
    }
  }

  /// Text before a tag: `-` strips all white space, a block or comment alone on its line loses its
  /// indentation.
  void add_text(std::string_view text, char type, char mark) {
    if (mark == '-') {
      text = strip(text, std::nullopt, false, true);
    } else if (type != '{' && mark != '+') {
      auto const last_break = text.rfind('\n');
      bool const from_line_start = last_break != std::string_view::npos || line_starting_;
      std::string_view const indent =
          text.substr(last_break == std::string_view::npos ? 0 : last_break + 1);
      if (from_line_start && strip(indent).empty()) { text.remove_suffix(indent.size()); }
    }
    if (!text.empty()) { add(token_kind::text, std::string{text}); }
  }

  /// After a tag's end: `-` strips all white space, a block or comment takes one line end with it.
  void finish_tag(char mark, bool takes_line_end) {
    line_starting_ = false;
    if (mark == '-') {
      std::size_t const before = rest().size();
      std::size_t const kept = strip(rest(), std::nullopt, true, false).size();
      line_starting_ = kept < before && source_[source_.size() - kept - 1] == '\n';
      advance(before - kept);
    } else if (takes_line_end && mark != '+' && rest().starts_with('\n')) {
      line_starting_ = true;
      advance(1);
    }
  }

  void skip_comment() {
    auto const end = rest().find("#}");
    if (end == std::string_view::npos) { fail("a comment is not closed"); }
    char const mark = end > 0 ? rest()[end - 1] : ' ';
    advance(end + 2);
    finish_tag(mark, true);
  }

  /// `{% raw %} ... {% endraw %}`; the block's begin has been read.
  bool read_raw() {
    auto const inside = [](std::string_view text,
                           std::string_view word) -> std::optional<std::pair<std::size_t, char>> {
      auto const trimmed = strip(text, std::nullopt, true, false);
      std::size_t const skipped = text.size() - trimmed.size();
      if (!trimmed.starts_with(word)) { return std::nullopt; }
      auto const after = strip(trimmed.substr(word.size()), std::nullopt, true, false);
      std::size_t const length = skipped + trimmed.size() - after.size();
      if (after.starts_with("%}")) { return std::pair{length + 2, ' '}; }
      if (after.starts_with("-%}") || after.starts_with("+%}")) {
        return std::pair{length + 3, after[0]};
      }
      return std::nullopt;
    };
    auto const opening = inside(rest(), "raw");
    if (!opening) { return false; }
    advance(opening->first);
    finish_tag(opening->second, true);
    for (auto at = rest().find("{%"); at != std::string_view::npos;
         at = rest().find("{%", at + 2)) {
      char const mark = at + 2 < rest().size() ? rest()[at + 2] : ' ';
      std::size_t const begin = at + (mark == '-' || mark == '+' ? 3 : 2);
      auto const closing = inside(rest().substr(begin), "endraw");
      if (!closing) { continue; }
      add_text(rest().substr(0, at), '%', mark);
      advance(begin + closing->first);
      finish_tag(closing->second, true);
      return true;
    }
    fail("a raw block is not closed");
  }

  void read_tag(token_kind opening, token_kind closing, std::string_view end) {
    add(opening, "");
    for (int open_brackets = 0;;) {
      std::string_view const ahead = strip(rest(), std::nullopt, true, false);
      advance(rest().size() - ahead.size());
      if (ahead.empty()) {
        fail(std::string{"a tag is not closed with `"} + std::string{end} + "`");
      }
      bool const marked = (ahead[0] == '-' || ahead[0] == '+') && ahead.substr(1).starts_with(end);
      if (open_brackets == 0 && (marked || ahead.starts_with(end))) {
        add(closing, "");
        advance(end.size() + (marked ? 1 : 0));
        finish_tag(marked ? ahead[0] : ' ', closing == token_kind::block_end);
        return;
      }
      read_token(ahead, open_brackets);
    }
  }

  void read_token(std::string_view ahead, int& open_brackets) {
    auto const first = static_cast<unsigned char>(ahead[0]);
    if (first == '_' || first >= 0x80 || std::isalpha(first) != 0) {
      read_name(ahead);
    } else if (std::isdigit(first) != 0) {
      read_number(ahead);
    } else if (first == '\'' || first == '"') {
      read_string(ahead);
    } else {
      read_sign(ahead, open_brackets);
    }
  }

  void read_name(std::string_view ahead) {
    std::size_t length = 1;
    auto const inside = [](unsigned char c) {
      return c == '_' || c >= 0x80 || std::isalnum(c) != 0;
    };
    while (length < ahead.size() && inside(static_cast<unsigned char>(ahead[length]))) { ++length; }
    add(token_kind::name, std::string{ahead.substr(0, length)});
    advance(length);
  }

  /// Decimal numbers; underscores between digits are left out.
  void read_number(std::string_view ahead) {
    std::string digits;
    std::size_t length = 0;
    bool real = false;
    auto const digit_at = [&](std::size_t at) {
      return at < ahead.size() && std::isdigit(static_cast<unsigned char>(ahead[at])) != 0;
    };
    auto const take_digits = [&] {
      for (; digit_at(length) ||
             (length < ahead.size() && ahead[length] == '_' && digit_at(length + 1));
           ++length) {
        if (ahead[length] != '_') { digits += ahead[length]; }
      }
    };
    take_digits();
    if (length < ahead.size() && ahead[length] == '.' && digit_at(length + 1)) {
      real = true;
      digits += ahead[length++];
      take_digits();
    }
    if (length < ahead.size() && (ahead[length] == 'e' || ahead[length] == 'E')) {
      std::size_t const sign =
          length + 1 < ahead.size() && (ahead[length + 1] == '-' || ahead[length + 1] == '+') ? 1
                                                                                              : 0;
      if (digit_at(length + 1 + sign)) {
        real = true;
        digits += ahead.substr(length, 1 + sign);
        length += 1 + sign;
        take_digits();
      }
    }
    bool const glued =
        length < ahead.size() &&
        (ahead[length] == '_' || std::isalpha(static_cast<unsigned char>(ahead[length])) != 0);
    if (glued) {
      fail("`" + std::string{ahead.substr(0, length + 1)} + "` is not a decimal number");
    }
    add(real ? token_kind::real : token_kind::integer, std::move(digits));
    advance(length);
  }

  void read_string(std::string_view ahead) {
    char const quote = ahead[0];
    std::string text;
    std::size_t at = 1;
    while (at < ahead.size() && ahead[at] != quote) {
      if (ahead[at] == '\\' && at + 1 < ahead.size()) {
        at += read_escape(ahead.substr(at), text);
      } else {
        text += ahead[at++];
      }
    }
    if (at >= ahead.size()) { fail("a string is not closed"); }
    add(token_kind::string, std::move(text));
    advance(at + 1);
  }

  /// One escape sequence of Python; unknown ones stay as they are. Returns its length.
  std::size_t read_escape(std::string_view ahead, std::string& text) {
    static constexpr std::string_view letters = "abfnrtv\\'\"";
    static constexpr std::string_view meanings = "\a\b\f\n\r\t\v\\'\"";
    char const letter = ahead[1];
    if (letter == '\n') { return 2; }
    if (auto const at = letters.find(letter); at != std::string_view::npos) {
      text += meanings[at];
      return 2;
    }
    std::size_t const digits = letter == 'x' ? 2 : letter == 'u' ? 4 : letter == 'U' ? 8 : 0;
    bool const octal = letter >= '0' && letter <= '7';
    if (letter == 'N' || (octal && letter != '0')) {
      fail("the escape `\\" + std::string(1, letter) + "` is not supported");
    }
    if (digits == 0 && !octal) {
      text += '\\';
      return 1;
    }
    std::uint32_t code = 0;
    if (!octal) {
      auto const number = ahead.substr(2, digits);
      auto const [end, error_code] =
          std::from_chars(number.data(), number.data() + number.size(), code, 16);
      bool const whole =
          number.size() == digits && error_code == std::errc{} && end == number.data() + digits;
      if (!whole || code > 0x10'FFFF || (code >= 0xD800 && code < 0xE000)) {
        fail("a string has a broken \\x or \\u escape");
      }
    }
    append_utf8(text, code);
    return 2 + digits;
  }

  void read_sign(std::string_view ahead, int& open_brackets) {
    static constexpr std::array<std::string_view, 26> signs{
        "==", "!=", "<=", ">=", "//", "**", "+", "-", "*", "/", "%", "~", "<",
        ">",  "=",  ".",  ",",  ":",  "|",  "(", ")", "[", "]", "{", "}", ";"};
    for (auto const sign : signs) {
      if (!ahead.starts_with(sign)) { continue; }
      open_brackets += sign == "(" || sign == "[" || sign == "{" ? 1 : 0;
      open_brackets -= sign == ")" || sign == "]" || sign == "}" ? 1 : 0;
      if (open_brackets < 0) { fail("`" + std::string{sign} + "` closes nothing"); }
      add(token_kind::sign, std::string{sign});
      advance(sign.size());
      return;
    }
    fail("`" + std::string{ahead.substr(0, read_utf8(ahead).bytes)} +
         "` is no part of the template language");
  }

  std::string source_;
  std::size_t at_ = 0;
  int line_ = 1;
  bool line_starting_ = true;  // the text ahead begins at the start of a line
  std::vector<token> tokens_;
};

}  // namespace terrace::tokenize::jinja
