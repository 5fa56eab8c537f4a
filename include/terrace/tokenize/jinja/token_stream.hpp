// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/error.hpp>
#include <terrace/tokenize/jinja/lexer.hpp>

#include <algorithm>
#include <cstddef>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace terrace::tokenize::jinja {

/// The tokens of a template as the parsers walk over them.
class token_stream {
 public:
  explicit token_stream(std::vector<token> tokens) : tokens_{std::move(tokens)} {}

  [[nodiscard]] token const& peek(std::size_t ahead = 0) const {
    return tokens_[std::min(at_ + ahead, tokens_.size() - 1)];
  }
  [[nodiscard]] bool at(token_kind kind) const { return peek().kind == kind; }
  [[nodiscard]] bool at(token_kind kind, std::string_view text) const {
    return at(kind) && peek().text == text;
  }
  [[nodiscard]] bool at_sign(std::string_view text) const { return at(token_kind::sign, text); }
  [[nodiscard]] bool at_name(std::string_view text) const { return at(token_kind::name, text); }
  [[nodiscard]] int line() const { return peek().line; }

  token next() {
    token taken = peek();
    at_ = std::min(at_ + 1, tokens_.size() - 1);
    return taken;
  }
  bool skip_sign(std::string_view text) { return at_sign(text) && (next(), true); }
  bool skip_name(std::string_view text) { return at_name(text) && (next(), true); }
  void expect_sign(std::string_view text) {
    if (!skip_sign(text)) { fail_expecting("`" + std::string{text} + "`"); }
  }
  void expect_name(std::string_view text) {
    if (!skip_name(text)) { fail_expecting("`" + std::string{text} + "`"); }
  }
  void expect(token_kind kind, std::string const& what) {
    if (!at(kind)) { fail_expecting(what); }
    next();
  }
  [[nodiscard]] std::string take_name() {
    if (!at(token_kind::name)) { fail_expecting("a name"); }
    return next().text;
  }

  [[noreturn]] void fail(std::string const& what) const {
    throw format_error{"chat template, line " + std::to_string(line()) + ": " + what};
  }
  [[noreturn]] void unsupported(std::string const& what) const {
    throw not_supported{"chat template, line " + std::to_string(line()) + ": " + what +
                        " is not supported"};
  }
  [[noreturn]] void fail_expecting(std::string const& what) const {
    fail("expected " + what + " where " + describe() + " stands");
  }

 private:
  [[nodiscard]] std::string describe() const {
    switch (peek().kind) {
      case token_kind::block_end:
        return "the end of the block";
      case token_kind::output_end:
        return "the end of the output";
      case token_kind::text:
        return "text";
      case token_kind::end:
        return "the end of the template";
      default:
        return "`" + peek().text + "`";
    }
  }

  std::vector<token> tokens_;
  std::size_t at_ = 0;
};

/// Which variables a template reads from outside: names read before the template itself gave them a
/// value in the same or an enclosing block.
class free_names {
 public:
  void read(std::string const& name) {
    if (std::find(bound_.begin(), bound_.end(), name) == bound_.end()) { names_.insert(name); }
  }
  void bind(std::string name) { bound_.push_back(std::move(name)); }
  /// Marks the start of a block; `leave` forgets what was bound since.
  [[nodiscard]] std::size_t enter() const { return bound_.size(); }
  void leave(std::size_t mark) { bound_.resize(mark); }
  [[nodiscard]] std::set<std::string, std::less<>> const& names() const { return names_; }

 private:
  std::vector<std::string> bound_;
  std::set<std::string, std::less<>> names_;
};

/// Bounds how deep the parsers recurse.
class nesting {
 public:
  nesting(int& depth, token_stream const& tokens) : depth_{depth} {
    constexpr int limit = 150;
    if (++depth_ > limit) {
      --depth_;
      tokens.fail("nested more than " + std::to_string(limit) + " deep");
    }
  }
  ~nesting() { --depth_; }
  nesting(nesting const&) = delete;
  nesting& operator=(nesting const&) = delete;

 private:
  int& depth_;
};

}  // namespace terrace::tokenize::jinja
