// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/tokenize/jinja/syntax.hpp>
#include <terrace/tokenize/jinja/token_stream.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace terrace::tokenize::jinja {

/// Expressions by recursive descent; one function per level of precedence, loosest first.
class expression_parser {
 public:
  expression_parser(token_stream& tokens, free_names& names, int& depth)
      : tokens_{tokens}, names_{names}, depth_{depth} {}

  /// An expression, `a if b else c` included.
  [[nodiscard]] expression_ptr parse() {
    nesting const inside{depth_, tokens_};
    auto result = parse_either();
    while (tokens_.skip_name("if")) {
      auto condition = parse_either();
      auto otherwise = tokens_.skip_name("else") ? parse() : nullptr;
      result = make(expression_kind::conditional,
                    {},
                    std::move(result),
                    std::move(condition),
                    std::move(otherwise));
    }
    return result;
  }

  /// One expression, or several with commas between them as a tuple; without `a if b` where `if`
  /// means something else.
  [[nodiscard]] expression_ptr parse_tuple(bool with_conditional) {
    auto first = with_conditional ? parse() : parse_either();
    if (!tokens_.at_sign(",")) { return first; }
    auto result = make(expression_kind::tuple, {}, std::move(first));
    while (tokens_.skip_sign(",") && !at_tuple_end()) {
      adopt(*result, with_conditional ? parse() : parse_either());
    }
    return result;
  }

  /// Filters after `subject`, which is null in a filter block: `| name(arguments) | ...`.
  [[nodiscard]] expression_ptr parse_filters(expression_ptr subject) {
    do { subject = parse_filter(std::move(subject)); } while (tokens_.skip_sign("|"));
    return subject;
  }

 private:
  template <class... Parts>
  [[nodiscard]] expression_ptr make(expression_kind kind, std::string name, Parts... parts) {
    auto made = std::make_unique<expression>();
    made->kind = kind;
    made->line = tokens_.line();
    made->name = std::move(name);
    (adopt(*made, std::move(parts)), ...);
    return made;
  }
  void note_depth(expression& parent, expression_ptr const& part) {
    constexpr int limit = 200;
    if (part == nullptr) { return; }
    parent.depth = std::max(parent.depth, part->depth + 1);
    if (parent.depth > limit) {
      tokens_.fail("an expression is nested more than " + std::to_string(limit) + " deep");
    }
  }
  void adopt(expression& parent, expression_ptr part) {
    note_depth(parent, part);
    parent.parts.push_back(std::move(part));
  }
  [[nodiscard]] expression_ptr make_constant(value of) {
    auto made = make(expression_kind::constant, {});
    made->constant = std::move(of);
    return made;
  }
  [[nodiscard]] bool at_tuple_end() const {
    return tokens_.at(token_kind::block_end) || tokens_.at(token_kind::output_end) ||
           tokens_.at_sign(")") || tokens_.at_sign("=") || tokens_.at_name("in");
  }

  [[nodiscard]] expression_ptr parse_either() {
    auto left = parse_both();
    while (tokens_.skip_name("or")) {
      left = make(expression_kind::either, {}, std::move(left), parse_both());
    }
    return left;
  }
  [[nodiscard]] expression_ptr parse_both() {
    auto left = parse_not();
    while (tokens_.skip_name("and")) {
      left = make(expression_kind::both, {}, std::move(left), parse_not());
    }
    return left;
  }
  [[nodiscard]] expression_ptr parse_not() {
    nesting const inside{depth_, tokens_};
    if (tokens_.skip_name("not")) { return make(expression_kind::negation, {}, parse_not()); }
    return parse_comparison();
  }

  [[nodiscard]] std::string take_comparison() {
    for (std::string_view const sign : {"==", "!=", "<=", ">=", "<", ">"}) {
      if (tokens_.skip_sign(sign)) { return std::string{sign}; }
    }
    if (tokens_.skip_name("in")) { return "in"; }
    if (tokens_.at_name("not") && tokens_.peek(1).kind == token_kind::name &&
        tokens_.peek(1).text == "in") {
      tokens_.next();
      tokens_.next();
      return "not in";
    }
    return {};
  }
  [[nodiscard]] expression_ptr parse_comparison() {
    auto left = parse_sum();
    std::string sign = take_comparison();
    if (sign.empty()) { return left; }
    auto result = make(expression_kind::comparison, {}, std::move(left));
    for (; !sign.empty(); sign = take_comparison()) {
      adopt(*result, parse_sum());
      result->operators.push_back(std::move(sign));
    }
    return result;
  }

  [[nodiscard]] expression_ptr parse_sum() {
    auto left = parse_concat();
    while (tokens_.at_sign("+") || tokens_.at_sign("-")) {
      std::string sign = tokens_.next().text;
      left = make(expression_kind::arithmetic, std::move(sign), std::move(left), parse_concat());
    }
    return left;
  }
  [[nodiscard]] expression_ptr parse_concat() {
    auto left = parse_product();
    if (!tokens_.at_sign("~")) { return left; }
    auto result = make(expression_kind::concat, {}, std::move(left));
    while (tokens_.skip_sign("~")) { adopt(*result, parse_product()); }
    return result;
  }
  [[nodiscard]] expression_ptr parse_product() {
    auto left = parse_power();
    while (tokens_.at_sign("*") || tokens_.at_sign("/") || tokens_.at_sign("//") ||
           tokens_.at_sign("%")) {
      std::string sign = tokens_.next().text;
      left = make(expression_kind::arithmetic, std::move(sign), std::move(left), parse_power());
    }
    return left;
  }
  [[nodiscard]] expression_ptr parse_power() {
    auto left = parse_unary(true);
    while (tokens_.skip_sign("**")) {
      left = make(expression_kind::arithmetic, "**", std::move(left), parse_unary(true));
    }
    return left;
  }
  [[nodiscard]] expression_ptr parse_unary(bool with_filters) {
    nesting const inside{depth_, tokens_};
    expression_ptr result;
    if (tokens_.at_sign("-") || tokens_.at_sign("+")) {
      std::string sign = tokens_.next().text;
      result = make(expression_kind::sign, std::move(sign), parse_unary(false));
    } else {
      result = parse_postfix(parse_primary());
    }
    return with_filters ? parse_filters_and_tests(std::move(result)) : std::move(result);
  }

  [[nodiscard]] expression_ptr parse_primary() {
    if (tokens_.at(token_kind::name)) { return parse_name(); }
    if (tokens_.at(token_kind::string)) {
      std::string text;
      while (tokens_.at(token_kind::string)) { text += tokens_.next().text; }
      return make_constant(std::move(text));
    }
    if (tokens_.at(token_kind::integer) || tokens_.at(token_kind::real)) { return parse_number(); }
    if (tokens_.skip_sign("(")) {
      if (tokens_.skip_sign(")")) { return make(expression_kind::tuple, {}); }
      auto inner = parse_tuple(true);
      tokens_.expect_sign(")");
      return inner;
    }
    if (tokens_.skip_sign("[")) {
      auto list = make(expression_kind::list, {});
      while (!tokens_.at_sign("]")) {
        adopt(*list, parse());
        if (!tokens_.skip_sign(",")) { break; }
      }
      tokens_.expect_sign("]");
      return list;
    }
    if (tokens_.skip_sign("{")) { return parse_dict(); }
    tokens_.fail_expecting("an expression");
  }

  [[nodiscard]] expression_ptr parse_name() {
    std::string name = tokens_.next().text;
    if (name == "true" || name == "True") { return make_constant(true); }
    if (name == "false" || name == "False") { return make_constant(false); }
    if (name == "none" || name == "None") { return make_constant(none{}); }
    names_.read(name);
    return make(expression_kind::name, std::move(name));
  }
  [[nodiscard]] expression_ptr parse_number() {
    token const number = tokens_.next();
    if (number.kind == token_kind::real) {
      return make_constant(std::strtod(number.text.c_str(), nullptr));
    }
    std::int64_t whole = 0;
    auto const [end, code] =
        std::from_chars(number.text.data(), number.text.data() + number.text.size(), whole);
    if (code != std::errc{}) { tokens_.fail("the number " + number.text + " is too large"); }
    return make_constant(whole);
  }
  [[nodiscard]] expression_ptr parse_dict() {
    auto dict = make(expression_kind::dict, {});
    while (!tokens_.at_sign("}")) {
      adopt(*dict, parse());
      tokens_.expect_sign(":");
      adopt(*dict, parse());
      if (!tokens_.skip_sign(",")) { break; }
    }
    tokens_.expect_sign("}");
    return dict;
  }

  [[nodiscard]] expression_ptr parse_postfix(expression_ptr subject) {
    for (;;) {
      if (tokens_.skip_sign(".")) {
        subject = parse_attribute(std::move(subject));
      } else if (tokens_.skip_sign("[")) {
        subject = parse_subscript(std::move(subject));
      } else if (tokens_.at_sign("(")) {
        subject = make(expression_kind::call, {}, std::move(subject));
        parse_arguments(*subject);
      } else {
        return subject;
      }
    }
  }
  [[nodiscard]] expression_ptr parse_attribute(expression_ptr subject) {
    if (tokens_.at(token_kind::integer)) {
      return make(expression_kind::item, {}, std::move(subject), parse_number());
    }
    std::string name = tokens_.take_name();
    return make(expression_kind::attribute, std::move(name), std::move(subject));
  }
  [[nodiscard]] expression_ptr parse_subscript(expression_ptr subject) {
    std::array<expression_ptr, 3> bounds;
    std::size_t colons = 0;
    if (!tokens_.at_sign(":")) { bounds[0] = parse(); }
    while (colons < 2 && tokens_.skip_sign(":")) {
      ++colons;
      if (!tokens_.at_sign("]") && !tokens_.at_sign(":")) { bounds[colons] = parse(); }
    }
    if (tokens_.at_sign(",")) { tokens_.unsupported("an index with commas"); }
    tokens_.expect_sign("]");
    if (colons == 0) {
      return make(expression_kind::item, {}, std::move(subject), std::move(bounds[0]));
    }
    return make(expression_kind::slice,
                {},
                std::move(subject),
                std::move(bounds[0]),
                std::move(bounds[1]),
                std::move(bounds[2]));
  }
  void parse_arguments(expression& call) {
    tokens_.expect_sign("(");
    while (!tokens_.at_sign(")")) {
      if (tokens_.at_sign("*") || tokens_.at_sign("**")) {
        tokens_.unsupported("spreading arguments with `*`");
      }
      if (tokens_.at(token_kind::name) && tokens_.peek(1).kind == token_kind::sign &&
          tokens_.peek(1).text == "=") {
        std::string name = tokens_.take_name();
        tokens_.expect_sign("=");
        call.named.emplace_back(std::move(name), parse());
        note_depth(call, call.named.back().second);
      } else if (call.named.empty()) {
        adopt(call, parse());
      } else {
        tokens_.fail("an argument without a name follows one with a name");
      }
      if (!tokens_.skip_sign(",")) { break; }
    }
    tokens_.expect_sign(")");
  }

  [[nodiscard]] expression_ptr parse_filters_and_tests(expression_ptr subject) {
    for (;;) {
      if (tokens_.skip_sign("|")) {
        subject = parse_filter(std::move(subject));
      } else if (tokens_.skip_name("is")) {
        subject = parse_test(std::move(subject));
      } else if (tokens_.at_sign("(")) {
        subject = parse_postfix(std::move(subject));
      } else {
        return subject;
      }
    }
  }
  [[nodiscard]] expression_ptr parse_filter(expression_ptr subject) {
    std::string name = tokens_.take_name();
    auto filter = make(expression_kind::filter, std::move(name), std::move(subject));
    if (tokens_.at_sign("(")) { parse_arguments(*filter); }
    return filter;
  }
  [[nodiscard]] expression_ptr parse_test(expression_ptr subject) {
    bool const negated = tokens_.skip_name("not");
    std::string name = tokens_.take_name();
    auto test = make(expression_kind::test, std::move(name), std::move(subject));
    bool const operand = tokens_.at(token_kind::string) || tokens_.at(token_kind::integer) ||
                         tokens_.at(token_kind::real) || tokens_.at_sign("[") ||
                         tokens_.at_sign("{") ||
                         (tokens_.at(token_kind::name) && !is_connective(tokens_.peek().text));
    if (tokens_.at_sign("(")) {
      parse_arguments(*test);
    } else if (operand) {
      adopt(*test, parse_postfix(parse_primary()));
    }
    if (tokens_.at_name("is")) { tokens_.fail("tests cannot be chained with `is`"); }
    return negated ? make(expression_kind::negation, {}, std::move(test)) : std::move(test);
  }
  [[nodiscard]] static bool is_connective(std::string_view name) {
    return name == "else" || name == "or" || name == "and" || name == "is" || name == "if" ||
           name == "in" || name == "not";
  }

  token_stream& tokens_;
  free_names& names_;
  int& depth_;
};

}  // namespace terrace::tokenize::jinja
