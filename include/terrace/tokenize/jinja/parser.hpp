// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/tokenize/jinja/expression_parser.hpp>
#include <terrace/tokenize/jinja/lexer.hpp>
#include <terrace/tokenize/jinja/syntax.hpp>
#include <terrace/tokenize/jinja/token_stream.hpp>

#include <initializer_list>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace terrace::tokenize::jinja {

/// Statements of a template.
/// Errors: format_error with the line for broken syntax; not_supported for statements outside the subset.
class parser {
 public:
  explicit parser(std::string_view source)
      : tokens_{lexer{source}.run()}, expressions_{tokens_, names_, depth_} {}

  [[nodiscard]] block parse() {
    block body = parse_body({});
    if (!tokens_.at(token_kind::end)) { tokens_.fail_expecting("the end of the template"); }
    return body;
  }
  [[nodiscard]] std::set<std::string, std::less<>> const& free_variables() const {
    return names_.names();
  }

 private:
  using words = std::initializer_list<std::string_view>;

  /// Statements until a block that begins with one of `enders`; that name is left to be read.
  [[nodiscard]] block parse_body(words enders) {
    nesting const inside{depth_, tokens_};
    block body;
    while (!tokens_.at(token_kind::end)) {
      if (tokens_.at(token_kind::text)) {
        body.push_back(start(statement_kind::text));
        body.back().text = tokens_.next().text;
      } else if (tokens_.at(token_kind::output_begin)) {
        tokens_.next();
        body.push_back(start(statement_kind::output));
        body.back().values.push_back(expressions_.parse_tuple(true));
        tokens_.expect(token_kind::output_end, "`}}`");
      } else {
        tokens_.expect(token_kind::block_begin, "a block");
        for (auto const ender : enders) {
          if (tokens_.at_name(ender)) { return body; }
        }
        body.push_back(parse_statement());
      }
    }
    if (enders.size() > 0) {
      tokens_.fail("the template ends before `" + std::string{*(enders.end() - 1)} + "`");
    }
    return body;
  }
  /// The same, with names bound inside forgotten at its end.
  [[nodiscard]] block parse_inner(words enders) {
    auto const mark = names_.enter();
    block body = parse_body(enders);
    names_.leave(mark);
    return body;
  }

  [[nodiscard]] statement start(statement_kind kind) const {
    statement made;
    made.kind = kind;
    made.line = tokens_.line();
    return made;
  }
  void end_block() { tokens_.expect(token_kind::block_end, "`%}`"); }

  [[nodiscard]] statement parse_statement() {
    std::string const name = tokens_.take_name();
    if (name == "if") { return parse_if(); }
    if (name == "for") { return parse_for(); }
    if (name == "set") { return parse_set(); }
    if (name == "macro") { return parse_macro(); }
    if (name == "call") { return parse_call(); }
    if (name == "filter") { return parse_filter_block(); }
    if (name == "with") { return parse_with(); }
    if (name == "generation") { return parse_generation(); }
    if (name == "break" || name == "continue") {
      if (loops_ == 0) { tokens_.fail("`" + name + "` stands outside a loop"); }
      auto made = start(name == "break" ? statement_kind::break_loop : statement_kind::next_round);
      end_block();
      return made;
    }
    for (std::string_view const known :
         {"extends", "block", "include", "import", "from", "autoescape", "do", "trans", "debug"}) {
      if (name == known) { tokens_.unsupported("the statement `" + name + "`"); }
    }
    tokens_.fail("`" + name + "` begins no statement that belongs here");
  }

  [[nodiscard]] statement parse_if() {
    auto made = start(statement_kind::branch);
    do {
      made.values.push_back(expressions_.parse_tuple(false));
      end_block();
      made.bodies.push_back(parse_inner({"elif", "else", "endif"}));
    } while (tokens_.skip_name("elif"));
    if (tokens_.skip_name("else")) {
      end_block();
      made.bodies.push_back(parse_inner({"endif"}));
    }
    tokens_.expect_name("endif");
    end_block();
    return made;
  }

  [[nodiscard]] std::vector<target> parse_names() {
    bool const bracketed = tokens_.skip_sign("(");
    std::vector<target> names;
    do { names.push_back({tokens_.take_name(), {}}); } while (tokens_.skip_sign(","));
    if (bracketed) { tokens_.expect_sign(")"); }
    return names;
  }

  [[nodiscard]] statement parse_for() {
    auto made = start(statement_kind::loop);
    made.targets = parse_names();
    tokens_.expect_name("in");
    made.values.push_back(expressions_.parse_tuple(false));
    auto const mark = names_.enter();
    for (auto const& one : made.targets) { names_.bind(one.name); }
    names_.bind("loop");
    made.values.push_back(tokens_.skip_name("if") ? expressions_.parse() : nullptr);
    if (tokens_.at_name("recursive")) { tokens_.unsupported("a recursive loop"); }
    end_block();
    ++loops_;
    made.bodies.push_back(parse_body({"else", "endfor"}));
    --loops_;
    names_.leave(mark);
    if (tokens_.skip_name("else")) {
      end_block();
      made.bodies.push_back(parse_inner({"endfor"}));
    }
    tokens_.expect_name("endfor");
    end_block();
    return made;
  }

  [[nodiscard]] statement parse_set() {
    auto made = start(statement_kind::assign);
    do {
      target to{tokens_.take_name(), {}};
      if (tokens_.skip_sign(".")) {
        names_.read(to.name);
        to.attribute = tokens_.take_name();
      }
      made.targets.push_back(std::move(to));
    } while (tokens_.skip_sign(","));
    if (tokens_.skip_sign("=")) {
      made.values.push_back(expressions_.parse_tuple(true));
      end_block();
    } else {
      made.kind = statement_kind::capture;
      if (made.targets.size() > 1) { tokens_.fail_expecting("`=`"); }
      made.values.push_back(tokens_.skip_sign("|") ? expressions_.parse_filters(nullptr) : nullptr);
      end_block();
      made.bodies.push_back(parse_inner({"endset"}));
      tokens_.expect_name("endset");
      end_block();
    }
    for (auto const& to : made.targets) {
      if (to.attribute.empty()) { names_.bind(to.name); }
    }
    return made;
  }

  /// `(name, name=default, ...)`, bound from here on.
  [[nodiscard]] std::vector<parameter> parse_parameters() {
    std::vector<parameter> parameters;
    tokens_.expect_sign("(");
    while (!tokens_.at_sign(")")) {
      parameter one{tokens_.take_name(), nullptr};
      if (tokens_.skip_sign("=")) {
        one.otherwise = expressions_.parse();
      } else if (!parameters.empty() && parameters.back().otherwise != nullptr) {
        tokens_.fail("a parameter without a default follows one with a default");
      }
      names_.bind(one.name);
      parameters.push_back(std::move(one));
      if (!tokens_.skip_sign(",")) { break; }
    }
    tokens_.expect_sign(")");
    return parameters;
  }

  /// The body of a macro or call block: a function of its own, so loops around it cannot be left
  /// from inside.
  [[nodiscard]] block parse_function_body(std::string_view ender) {
    int const outside = std::exchange(loops_, 0);
    block body = parse_body({ender});
    loops_ = outside;
    tokens_.expect_name(ender);
    end_block();
    return body;
  }

  [[nodiscard]] statement parse_macro() {
    auto made = start(statement_kind::macro);
    made.text = tokens_.take_name();
    names_.bind(made.text);
    auto const mark = names_.enter();
    names_.bind("caller");
    made.parameters = parse_parameters();
    end_block();
    made.bodies.push_back(parse_function_body("endmacro"));
    names_.leave(mark);
    return made;
  }

  [[nodiscard]] statement parse_call() {
    auto made = start(statement_kind::call_block);
    auto const mark = names_.enter();
    if (tokens_.at_sign("(")) { made.parameters = parse_parameters(); }
    made.values.push_back(expressions_.parse());
    if (made.values[0]->kind != expression_kind::call) { tokens_.fail_expecting("a call"); }
    end_block();
    made.bodies.push_back(parse_function_body("endcall"));
    names_.leave(mark);
    return made;
  }

  [[nodiscard]] statement parse_filter_block() {
    auto made = start(statement_kind::filter_block);
    made.values.push_back(expressions_.parse_filters(nullptr));
    end_block();
    made.bodies.push_back(parse_inner({"endfilter"}));
    tokens_.expect_name("endfilter");
    end_block();
    return made;
  }

  [[nodiscard]] statement parse_with() {
    auto made = start(statement_kind::scope);
    auto const mark = names_.enter();
    while (!tokens_.at(token_kind::block_end)) {
      made.targets.push_back({tokens_.take_name(), {}});
      tokens_.expect_sign("=");
      made.values.push_back(expressions_.parse());
      names_.bind(made.targets.back().name);
      if (!tokens_.skip_sign(",")) { break; }
    }
    end_block();
    made.bodies.push_back(parse_body({"endwith"}));
    names_.leave(mark);
    tokens_.expect_name("endwith");
    end_block();
    return made;
  }

  /// Marks what the model wrote, for training; prints its body.
  [[nodiscard]] statement parse_generation() {
    auto made = start(statement_kind::scope);
    end_block();
    made.bodies.push_back(parse_inner({"endgeneration"}));
    tokens_.expect_name("endgeneration");
    end_block();
    return made;
  }

  token_stream tokens_;
  free_names names_;
  int depth_ = 0;
  int loops_ = 0;
  expression_parser expressions_;
};

}  // namespace terrace::tokenize::jinja
