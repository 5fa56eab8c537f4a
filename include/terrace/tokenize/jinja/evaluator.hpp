// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/tokenize/jinja/filters.hpp>
#include <terrace/tokenize/jinja/methods.hpp>
#include <terrace/tokenize/jinja/operators.hpp>
#include <terrace/tokenize/jinja/runtime.hpp>
#include <terrace/tokenize/jinja/syntax.hpp>
#include <terrace/tokenize/jinja/tests.hpp>
#include <terrace/tokenize/jinja/value.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace terrace::tokenize::jinja {

/// Variables of one block; names not found are looked up further out.
struct scope {
  scope* outer = nullptr;
  std::map<std::string, value, std::less<>> variables;
  bool is_captured = false;  ///< a macro was made here and may be called after the block has ended

  void assign(std::string_view name, value of) {
    variables.insert_or_assign(std::string{name}, std::move(of));
  }
  [[nodiscard]] value const* find(std::string_view name) const {
    for (scope const* at = this; at != nullptr; at = at->outer) {
      if (auto const found = at->variables.find(name); found != at->variables.end()) {
        return &found->second;
      }
    }
    return nullptr;
  }
};

/// Values of expressions.
class evaluator {
 public:
  explicit evaluator(runtime& in) : in_{in} {}

  [[nodiscard]] value evaluate(expression const& what, scope& at) {
    runtime::level const inside{in_};
    in_.line = what.line;
    auto const part = [&](std::size_t i) { return evaluate(*what.parts[i], at); };
    switch (what.kind) {
      case expression_kind::constant:
        return what.constant;
      case expression_kind::name:
        return look_up(what.name, at);
      case expression_kind::list:
        return in_.made(all_parts(what, at));
      case expression_kind::tuple:
        return in_.made(all_parts(what, at), true);
      case expression_kind::dict:
        return evaluate_dict(what, at);
      case expression_kind::attribute:
        return attribute_of(part(0), what.name);
      case expression_kind::item:
        return item_of(in_, part(0), part(1));
      case expression_kind::slice:
        return evaluate_slice(what, at);
      case expression_kind::call:
        return evaluate_call(what, at);
      case expression_kind::filter:
        return apply_filter(in_, what.name, part(0), arguments_of(what, at));
      case expression_kind::test:
        return apply_test(in_, what.name, part(0), arguments_of(what, at));
      case expression_kind::negation:
        return !part(0).truthy();
      case expression_kind::sign:
        return arithmetic(
            in_, "*", std::int64_t{what.name == "-" ? -1 : 1}, signed_operand(what, at));
      case expression_kind::arithmetic:
        return evaluate_arithmetic(what, at);
      case expression_kind::concat:
        return evaluate_concat(what, at);
      case expression_kind::comparison:
        return evaluate_comparison(what, at);
      case expression_kind::both:
        return evaluate_connective(what, at, true);
      case expression_kind::either:
        return evaluate_connective(what, at, false);
      case expression_kind::conditional:
        return evaluate_conditional(what, at);
    }
    return {};
  }

  [[nodiscard]] call_arguments arguments_of(expression const& what, scope& at) {
    call_arguments arguments;
    for (std::size_t i = 1; i < what.parts.size(); ++i) {
      arguments.positional.push_back(evaluate(*what.parts[i], at));
    }
    for (auto const& [name, one] : what.named) {
      arguments.named.emplace_back(name, evaluate(*one, at));
    }
    return arguments;
  }

 private:
  [[nodiscard]] std::vector<value> all_parts(expression const& what, scope& at) {
    std::vector<value> parts;
    for (auto const& one : what.parts) { parts.push_back(evaluate(*one, at)); }
    return parts;
  }
  [[nodiscard]] value look_up(std::string const& name, scope& at) {
    auto const* found = at.find(name);
    return found == nullptr ? value::missing(name) : *found;
  }
  [[nodiscard]] value evaluate_dict(expression const& what, scope& at) {
    dict_data dict;
    for (std::size_t i = 0; i < what.parts.size(); i += 2) {
      value const key = evaluate(*what.parts[i], at);
      if (!key.is_text()) { in_.unsupported("a mapping whose key is " + kind_name(key)); }
      dict.assign(key.text(), evaluate(*what.parts[i + 1], at));
    }
    return make_dict(std::move(dict));
  }
  [[nodiscard]] value evaluate_slice(expression const& what, scope& at) {
    auto const bound = [&](std::size_t i) {
      return what.parts[i] == nullptr ? value{} : evaluate(*what.parts[i], at);
    };
    value const from = evaluate(*what.parts[0], at);
    if (from.is_undefined()) { in_.fail("a slice is asked of " + describe_missing(from)); }
    return slice_of(in_, from, bound(1), bound(2), bound(3));
  }
  [[nodiscard]] value signed_operand(expression const& what, scope& at) {
    value operand = evaluate(*what.parts[0], at);
    if (!operand.is_number()) { in_.fail("a sign stands before " + kind_name(operand)); }
    return operand;
  }
  [[nodiscard]] value evaluate_arithmetic(expression const& what, scope& at) {
    value const left = evaluate(*what.parts[0], at);
    return arithmetic(in_, what.name, left, evaluate(*what.parts[1], at));
  }
  [[nodiscard]] value evaluate_concat(expression const& what, scope& at) {
    std::string text;
    for (auto const& one : what.parts) { text += in_.text(evaluate(*one, at)); }
    return in_.made(std::move(text));
  }
  [[nodiscard]] value evaluate_comparison(expression const& what, scope& at) {
    value left = evaluate(*what.parts[0], at);
    for (std::size_t i = 0; i < what.operators.size(); ++i) {
      value right = evaluate(*what.parts[i + 1], at);
      if (!holds(in_, what.operators[i], left, right)) { return false; }
      left = std::move(right);
    }
    return true;
  }
  /// `and` and `or` give the operand that decided.
  [[nodiscard]] value evaluate_connective(expression const& what, scope& at, bool is_both) {
    value left = evaluate(*what.parts[0], at);
    return left.truthy() == is_both ? evaluate(*what.parts[1], at) : left;
  }
  [[nodiscard]] value evaluate_conditional(expression const& what, scope& at) {
    if (evaluate(*what.parts[1], at).truthy()) { return evaluate(*what.parts[0], at); }
    return what.parts[2] == nullptr ? value::missing("an `if` without `else`")
                                    : evaluate(*what.parts[2], at);
  }

  [[nodiscard]] value evaluate_call(expression const& what, scope& at) {
    auto const& callee = *what.parts[0];
    if (callee.kind == expression_kind::attribute) {
      value const self = evaluate(*callee.parts[0], at);
      auto const arguments = arguments_of(what, at);
      if (auto result = call_method(in_, self, callee.name, arguments)) {
        return *std::move(result);
      }
      return call(attribute_of(self, callee.name),
                  "`" + callee.name + "` of " + kind_name(self),
                  arguments);
    }
    value const function = evaluate(callee, at);
    return call(
        function,
        callee.kind == expression_kind::name ? "`" + callee.name + "`" : kind_name(function),
        arguments_of(what, at));
  }
  [[nodiscard]] value call(value const& function,
                           std::string const& what,
                           call_arguments const& arguments) {
    if (!function.is<callable_ptr>()) {
      in_.unsupported("calling " + what + ", which is no function known here,");
    }
    return function.as<callable_ptr>()->call(in_, arguments);
  }

  [[nodiscard]] value attribute_of(value const& from, std::string const& name) {
    if (auto const* loop = from.get_if<loop_ptr>()) { return loop_attribute(**loop, name); }
    if (from.is_undefined()) { in_.fail("`" + name + "` is asked of " + describe_missing(from)); }
    return entries_of(from) == nullptr ? value::missing(name) : item_of(in_, from, name);
  }
  [[nodiscard]] value loop_attribute(loop_data const& loop, std::string const& name) {
    auto const& items = loop.items->items;
    auto const whole = [](std::size_t number) { return value{static_cast<std::int64_t>(number)}; };
    if (name == "index") { return whole(loop.index + 1); }
    if (name == "index0") { return whole(loop.index); }
    if (name == "revindex") { return whole(items.size() - loop.index); }
    if (name == "revindex0") { return whole(items.size() - loop.index - 1); }
    if (name == "length") { return whole(items.size()); }
    if (name == "first") { return loop.index == 0; }
    if (name == "last") { return loop.index + 1 == items.size(); }
    if (name == "previtem") {
      return loop.index == 0 ? value::missing("loop.previtem") : items[loop.index - 1];
    }
    if (name == "nextitem") {
      return loop.index + 1 == items.size() ? value::missing("loop.nextitem")
                                            : items[loop.index + 1];
    }
    in_.unsupported("`loop." + name + "`");
  }

  runtime& in_;
};

}  // namespace terrace::tokenize::jinja
