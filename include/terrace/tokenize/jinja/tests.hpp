// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/tokenize/jinja/operators.hpp>
#include <terrace/tokenize/jinja/runtime.hpp>
#include <terrace/tokenize/jinja/value.hpp>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace terrace::tokenize::jinja {
namespace detail {

struct plain_test {
  std::string_view name;
  bool (*holds)(value const& of);
};

/// Tests without an operand.
inline constexpr plain_test plain_tests[] = {
    {"defined", [](value const& of) { return !of.is_undefined(); }},
    {"undefined", [](value const& of) { return of.is_undefined(); }},
    {"none", [](value const& of) { return of.is<none>(); }},
    {"string", [](value const& of) { return of.is_text(); }},
    {"mapping", [](value const& of) { return of.is<dict_ptr>(); }},
    {"number", [](value const& of) { return of.is_number(); }},
    {"boolean", [](value const& of) { return of.is<bool>(); }},
    {"integer", [](value const& of) { return of.is<std::int64_t>(); }},
    {"float", [](value const& of) { return of.is<double>(); }},
    {"true", [](value const& of) { return of.is<bool>() && of.as<bool>(); }},
    {"false", [](value const& of) { return of.is<bool>() && !of.as<bool>(); }},
    {"callable", [](value const& of) { return of.is<callable_ptr>(); }},
    // As in Python an undefined value can be walked over, and has a length of zero.
    {"iterable",
     [](value const& of) {
       return of.is_text() || of.is<list_ptr>() || of.is<dict_ptr>() || of.is_undefined();
     }},
    {"sequence",
     [](value const& of) {
       return of.is_text() || of.is<list_ptr>() || of.is<dict_ptr>() || of.is_undefined();
     }},
};

/// Tests that are a comparison by another name.
inline constexpr std::pair<std::string_view, std::string_view> comparison_tests[] = {
    {"eq", "=="},
    {"equalto", "=="},
    {"==", "=="},
    {"ne", "!="},
    {"!=", "!="},
    {"lt", "<"},
    {"lessthan", "<"},
    {"<", "<"},
    {"le", "<="},
    {"<=", "<="},
    {"gt", ">"},
    {">", ">"},
    {"ge", ">="},
    {">=", ">="},
    {"greaterthan", ">"},
    {"in", "in"},
    {"sameas", "=="},
};

}  // namespace detail

/// `of is name(operands)`.
[[nodiscard]] inline bool apply_test(runtime& in,
                                     std::string_view name,
                                     value const& of,
                                     call_arguments const& operands) {
  for (auto const& test : detail::plain_tests) {
    if (test.name != name) { continue; }
    static_cast<void>(operands.bind(in, name, {}));
    return test.holds(of);
  }
  for (auto const& [test, sign] : detail::comparison_tests) {
    if (test == name) { return holds(in, sign, of, operands.bind(in, name, {"other"})[0]); }
  }
  if (name == "odd" || name == "even" || name == "divisibleby") {
    auto const other = operands.bind(in, name, {"num"})[0];
    value const divisor = name == "divisibleby" ? other : value{std::int64_t{2}};
    bool const divides = !arithmetic(in, "%", of, divisor).truthy();
    return name == "odd" ? !divides : divides;
  }
  if (name == "lower" || name == "upper") {
    std::string const text = in.text(of);
    return text == (name == "lower" ? lower(text) : upper(text)) && lower(text) != upper(text);
  }
  in.unsupported("the test `" + std::string{name} + "`");
}

}  // namespace terrace::tokenize::jinja
