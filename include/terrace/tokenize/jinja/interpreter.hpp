// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/tokenize/jinja/evaluator.hpp>
#include <terrace/tokenize/jinja/filters.hpp>
#include <terrace/tokenize/jinja/functions.hpp>
#include <terrace/tokenize/jinja/operators.hpp>
#include <terrace/tokenize/jinja/runtime.hpp>
#include <terrace/tokenize/jinja/syntax.hpp>
#include <terrace/tokenize/jinja/value.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace terrace::tokenize::jinja {

/// Walks a parsed template once.
class interpreter {
 public:
  interpreter(runtime& in, std::vector<std::pair<std::string, value>> variables)
      : in_{in}, expressions_{in} {
    for (auto& [name, of] : environment_functions()) { globals_.assign(name, of); }
    for (auto& [name, of] : variables) { globals_.assign(name, std::move(of)); }
  }

  [[nodiscard]] std::string run(block const& body) {
    enter([&](scope& inner) { execute(body, inner); }, globals_);
    return std::move(out_);
  }

 private:
  enum class flow : std::uint8_t { on, break_loop, next_round };

  /// A macro, or the body of a call block. Borrows the template and the scope it was made in.
  struct macro final : callable {
    macro(interpreter& owner, statement const& definition, scope& home)
        : owner_{owner}, definition_{definition}, home_{home} {}
    [[nodiscard]] value call(runtime&, call_arguments const& arguments) const override {
      return owner_.call_macro(definition_, home_, arguments);
    }

   private:
    interpreter& owner_;
    statement const& definition_;
    scope& home_;
  };

  /// Runs `body` with a scope of its own, which outlives it if a macro was made there.
  template <class Body>
  void enter(Body&& body, scope& outer) {
    auto inner = std::make_unique<scope>();
    inner->outer = &outer;
    try {
      body(*inner);
    } catch (...) {
      if (inner->is_captured) { kept_.push_back(std::move(inner)); }
      throw;
    }
    if (inner->is_captured) { kept_.push_back(std::move(inner)); }
  }

  /// What `body` prints.
  template <class Body>
  [[nodiscard]] value capture(Body&& body) {
    std::string outside = std::exchange(out_, {});
    body();
    return in_.made(std::exchange(out_, std::move(outside)));
  }

  flow execute(block const& body, scope& at) {
    for (auto const& one : body) {
      if (flow const result = execute(one, at); result != flow::on) { return result; }
    }
    return flow::on;
  }

  flow execute(statement const& one, scope& at) {
    runtime::level const inside{in_};
    in_.line = one.line;
    switch (one.kind) {
      case statement_kind::text:
        print(one.text);
        return flow::on;
      case statement_kind::output:
        print(in_.text(expressions_.evaluate(*one.values[0], at)));
        return flow::on;
      case statement_kind::branch:
        return execute_branch(one, at);
      case statement_kind::loop:
        return execute_loop(one, at);
      case statement_kind::assign:
        assign_all(one.targets, expressions_.evaluate(*one.values[0], at), at);
        return flow::on;
      case statement_kind::capture:
        execute_capture(one, at);
        return flow::on;
      case statement_kind::macro:
        at.assign(one.text, make_macro(one, at));
        return flow::on;
      case statement_kind::call_block:
        execute_call_block(one, at);
        return flow::on;
      case statement_kind::filter_block:
        print(in_.text(through_filters(one.values[0].get(), body_text(one, at), at)));
        return flow::on;
      case statement_kind::scope:
        return execute_scope(one, at);
      case statement_kind::break_loop:
        return flow::break_loop;
      case statement_kind::next_round:
        return flow::next_round;
    }
    return flow::on;
  }

  void print(std::string_view text) {
    in_.charge(text.size() / 16);
    out_ += text;
  }

  flow execute_branch(statement const& one, scope& at) {
    for (std::size_t i = 0; i < one.values.size(); ++i) {
      if (expressions_.evaluate(*one.values[i], at).truthy()) { return execute(one.bodies[i], at); }
    }
    return one.bodies.size() > one.values.size() ? execute(one.bodies.back(), at) : flow::on;
  }

  flow execute_loop(statement const& one, scope& at) {
    auto items = sequence_of(in_, expressions_.evaluate(*one.values[0], at), "for");
    if (one.values[1] != nullptr) { items = filtered(one, std::move(items), at); }
    if (items.empty()) {
      if (one.bodies.size() > 1) { return execute(one.bodies[1], at); }
      return flow::on;
    }
    list_ptr const list = make_list(std::move(items)).as<list_ptr>();
    flow result = flow::on;
    for (std::size_t index = 0; index < list->items.size() && result != flow::break_loop; ++index) {
      enter(
          [&](scope& round) {
            round.assign("loop", loop_ptr{std::make_shared<loop_data>(loop_data{list, index})});
            assign_all(one.targets, list->items[index], round);
            result = execute(one.bodies[0], round);
          },
          at);
    }
    return flow::on;
  }
  /// `for x in items if condition`: the loop does not see what the condition leaves out.
  [[nodiscard]] std::vector<value> filtered(statement const& one,
                                            std::vector<value> items,
                                            scope& at) {
    std::vector<value> kept;
    for (auto& item : items) {
      enter(
          [&](scope& round) {
            assign_all(one.targets, item, round);
            if (expressions_.evaluate(*one.values[1], round).truthy()) { kept.push_back(item); }
          },
          at);
    }
    return kept;
  }

  void assign_all(std::vector<target> const& targets, value const& of, scope& at) {
    if (targets.size() == 1) { return assign_one(targets[0], of, at); }
    auto const parts = sequence_of(in_, of, "the assignment");
    if (parts.size() != targets.size()) {
      in_.fail(std::to_string(parts.size()) + " values for " + std::to_string(targets.size()) +
               " names");
    }
    for (std::size_t i = 0; i < targets.size(); ++i) { assign_one(targets[i], parts[i], at); }
  }
  void assign_one(target const& to, value const& of, scope& at) {
    if (to.attribute.empty()) { return at.assign(to.name, of); }
    auto const* space = at.find(to.name);
    if (space == nullptr || !space->is<dict_data*>()) {
      in_.fail("`" + to.name + "." + to.attribute + "` can only be set on a namespace");
    }
    in_.charge(space->as<dict_data*>()->items.size() / 16);
    space->as<dict_data*>()->assign(to.attribute, of);
  }

  [[nodiscard]] value body_text(statement const& one, scope& at) {
    return capture([&] { enter([&](scope& inner) { execute(one.bodies[0], inner); }, at); });
  }
  void execute_capture(statement const& one, scope& at) {
    assign_one(one.targets[0], through_filters(one.values[0].get(), body_text(one, at), at), at);
  }
  [[nodiscard]] value through_filters(expression const* filter, value of, scope& at) {
    if (filter == nullptr) { return of; }
    runtime::level const inside{in_};
    of = through_filters(filter->parts[0].get(), std::move(of), at);
    return apply_filter(in_, filter->name, of, expressions_.arguments_of(*filter, at));
  }

  flow execute_scope(statement const& one, scope& at) {
    flow result = flow::on;
    enter(
        [&](scope& inner) {
          for (std::size_t i = 0; i < one.targets.size(); ++i) {
            inner.assign(one.targets[i].name, expressions_.evaluate(*one.values[i], inner));
          }
          result = execute(one.bodies[0], inner);
        },
        at);
    return result;
  }

  [[nodiscard]] value make_macro(statement const& one, scope& at) {
    in_.charge(100);  // its scopes stay until the end
    for (scope* home = &at; home != nullptr; home = home->outer) { home->is_captured = true; }
    return callable_ptr{std::make_shared<macro const>(*this, one, at)};
  }
  [[nodiscard]] value call_macro(statement const& definition,
                                 scope& home,
                                 call_arguments const& arguments) {
    runtime::level const inside{in_};
    call_arguments given = arguments;
    std::optional<value> caller;
    for (auto at = given.named.begin(); at != given.named.end(); ++at) {
      if (at->first != "caller") { continue; }
      caller = at->second;
      given.named.erase(at);
      break;
    }
    std::vector<std::string_view> names;
    for (auto const& one : definition.parameters) { names.emplace_back(one.name); }
    auto const bound = given.bind(in_, definition.text.empty() ? "caller" : definition.text, names);
    int const line = in_.line;
    value printed;
    enter(
        [&](scope& inner) {
          if (caller) { inner.assign("caller", *caller); }
          for (std::size_t i = 0; i < names.size(); ++i) {
            auto const& otherwise = definition.parameters[i].otherwise;
            bool const defaulted = bound[i].is_undefined() && otherwise != nullptr;
            inner.assign(names[i], defaulted ? expressions_.evaluate(*otherwise, inner) : bound[i]);
          }
          printed = capture([&] { execute(definition.bodies[0], inner); });
        },
        home);
    in_.line = line;
    return printed;
  }
  void execute_call_block(statement const& one, scope& at) {
    auto const& call = *one.values[0];
    auto arguments = expressions_.arguments_of(call, at);
    arguments.named.emplace_back("caller", make_macro(one, at));
    value const function = expressions_.evaluate(*call.parts[0], at);
    if (!function.is<callable_ptr>()) {
      in_.fail("a call block calls " + kind_name(function) + ", not a macro");
    }
    print(in_.text(function.as<callable_ptr>()->call(in_, arguments)));
  }

  runtime& in_;
  evaluator expressions_;
  std::string out_;
  scope globals_;
  std::vector<std::unique_ptr<scope>> kept_;  // scopes that macros still refer to
};

}  // namespace terrace::tokenize::jinja
