// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/tokenize/jinja/runtime.hpp>
#include <terrace/tokenize/jinja/text.hpp>
#include <terrace/tokenize/jinja/value.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace terrace::tokenize::jinja {

[[nodiscard]] inline std::string describe_missing(value const& of) {
  auto const& what = of.as<undefined>().what;
  return what == nullptr ? "an undefined value" : "`" + *what + "`, which is undefined";
}

/// What a loop or a filter over a sequence walks: list items, characters, keys of a mapping,
/// nothing for undefined.
[[nodiscard]] inline std::vector<value> sequence_of(runtime& in,
                                                    value const& from,
                                                    std::string_view who) {
  std::vector<value> items;
  if (from.is<list_ptr>()) {
    items = from.items();
  } else if (from.is_text()) {
    in.charge(from.text().size());
    for (auto const character : characters(from.text())) {
      items.emplace_back(std::string{character});
    }
  } else if (from.is<dict_ptr>()) {
    for (auto const& [key, item] : from.as<dict_ptr>()->items) { items.emplace_back(key); }
  } else if (!from.is_undefined()) {
    in.fail("`" + std::string{who} + "` cannot walk over " + kind_name(from));
  }
  in.charge(items.size());
  return items;
}

/// -1, 0 or 1; numbers, strings by code point, lists item by item.
[[nodiscard]] inline int compare(runtime& in, value const& a, value const& b) {
  in.charge(1);
  if (a.is_integral() && b.is_integral()) {
    return a.integer() < b.integer() ? -1 : a.integer() > b.integer() ? 1 : 0;
  }
  if (a.is_number() && b.is_number()) {
    return a.number() < b.number() ? -1 : a.number() > b.number() ? 1 : 0;
  }
  if (a.is_text() && b.is_text()) {
    int const order = a.text().compare(b.text());
    return order < 0 ? -1 : order > 0 ? 1 : 0;
  }
  if (a.is<list_ptr>() && b.is<list_ptr>()) {
    std::size_t const common = std::min(a.items().size(), b.items().size());
    for (std::size_t i = 0; i < common; ++i) {
      if (int const order = compare(in, a.items()[i], b.items()[i]); order != 0) { return order; }
    }
    return a.items().size() < b.items().size() ? -1 : a.items().size() > b.items().size() ? 1 : 0;
  }
  in.fail("cannot order " + kind_name(a) + " and " + kind_name(b));
}

/// `item in container`.
[[nodiscard]] inline bool contains(runtime& in, value const& container, value const& item) {
  if (container.is_text()) {
    if (!item.is_text()) {
      in.fail("`in` looks for a string in a string, not for " + kind_name(item));
    }
    in.charge(1 + container.text().size() / 16);
    return container.text().find(item.text()) != std::string::npos;
  }
  if (auto const* entries = entries_of(container)) {
    in.charge(entries->items.size() / 16);
    return item.is_text() && entries->find(item.text()) != nullptr;
  }
  if (container.is<list_ptr>()) {
    return std::any_of(container.items().begin(), container.items().end(), [&](value const& each) {
      return in.same(each, item);
    });
  }
  if (container.is_undefined()) { return false; }
  in.fail("`in` cannot look into " + kind_name(container));
}

namespace detail {

[[nodiscard]] inline value whole_arithmetic(runtime& in,
                                            std::string_view sign,
                                            std::int64_t a,
                                            std::int64_t b) {
  std::int64_t result = 0;
  bool overflow = false;
  if (sign == "+") { overflow = __builtin_add_overflow(a, b, &result); }
  if (sign == "-") { overflow = __builtin_sub_overflow(a, b, &result); }
  if (sign == "*") { overflow = __builtin_mul_overflow(a, b, &result); }
  if (sign == "//" || sign == "%") {
    if (b == 0) { in.fail("division by zero"); }
    overflow = b == -1 && a == std::numeric_limits<std::int64_t>::min();
    if (!overflow) {
      std::int64_t const rest = a % b;
      bool const floor =
          rest != 0 && (rest < 0) != (b < 0);  // Python rounds down where C++ truncates
      result = sign == "%" ? rest + (floor ? b : 0) : a / b - (floor ? 1 : 0);
    }
  }
  if (sign == "**") {
    result = 1;
    for (std::int64_t i = 0; i < b && !overflow && result != 0; ++i) {
      if (a == 1 || (a == -1 && i == 1)) {
        result = a == 1 || b % 2 == 0 ? 1 : -1;
        break;
      }
      overflow = __builtin_mul_overflow(result, a, &result);
    }
  }
  if (overflow) { in.fail("a whole number does not fit 64 bits"); }
  return result;
}

[[nodiscard]] inline value real_arithmetic(runtime& in, std::string_view sign, double a, double b) {
  if ((sign == "/" || sign == "//" || sign == "%") && b == 0) { in.fail("division by zero"); }
  if (sign == "+") { return a + b; }
  if (sign == "-") { return a - b; }
  if (sign == "*") { return a * b; }
  if (sign == "/") { return a / b; }
  if (sign == "//") { return std::floor(a / b); }
  if (sign == "%") { return a - b * std::floor(a / b); }
  return std::pow(a, b);
}

[[nodiscard]] inline value repeat(runtime& in, value const& what, std::int64_t times) {
  auto const count = static_cast<std::uint64_t>(std::max<std::int64_t>(times, 0));
  std::uint64_t const size = what.is_text() ? what.text().size() / 16 + 1 : what.items().size() + 1;
  if (count > in.limits.steps) {
    in.charge(count);
  }  // refuses; keeps the product below from wrapping
  in.charge(count * size);
  if (what.is_text()) {
    std::string text;
    for (std::uint64_t i = 0; i < count; ++i) { text += what.text(); }
    return text;
  }
  std::vector<value> items;
  for (std::uint64_t i = 0; i < count; ++i) {
    items.insert(items.end(), what.items().begin(), what.items().end());
  }
  return make_list(std::move(items), what.as<list_ptr>()->is_tuple);
}

}  // namespace detail

/// `a sign b` for + - * / // % **.
[[nodiscard]] inline value arithmetic(runtime& in,
                                      std::string_view sign,
                                      value const& a,
                                      value const& b) {
  if (a.is_number() && b.is_number()) {
    bool const whole =
        a.is_integral() && b.is_integral() && sign != "/" && (sign != "**" || b.integer() >= 0);
    return whole ? detail::whole_arithmetic(in, sign, a.integer(), b.integer())
                 : detail::real_arithmetic(in, sign, a.number(), b.number());
  }
  if (sign == "+" && a.is_text() && b.is_text()) { return in.made(a.text() + b.text()); }
  if (sign == "+" && a.is<list_ptr>() && b.is<list_ptr>()) {
    std::vector<value> items = a.items();
    items.insert(items.end(), b.items().begin(), b.items().end());
    return in.made(std::move(items), a.as<list_ptr>()->is_tuple);
  }
  bool const repeatable = a.is_text() || a.is<list_ptr>();
  if (sign == "*" && repeatable && b.is_integral()) { return detail::repeat(in, a, b.integer()); }
  if (sign == "*" && a.is_integral() && (b.is_text() || b.is<list_ptr>())) {
    return detail::repeat(in, b, a.integer());
  }
  if (sign == "%" && a.is_text()) { in.unsupported("formatting a string with `%`"); }
  for (auto const* side : {&a, &b}) {
    if (side->is_undefined()) {
      in.fail("`" + std::string{sign} + "` is applied to " + describe_missing(*side));
    }
  }
  in.fail("`" + std::string{sign} + "` cannot be applied to " + kind_name(a) + " and " +
          kind_name(b));
}

/// One comparison of a chain.
[[nodiscard]] inline bool holds(runtime& in,
                                std::string_view sign,
                                value const& a,
                                value const& b) {
  if (sign == "==") { return in.same(a, b); }
  if (sign == "!=") { return !in.same(a, b); }
  if (sign == "in") { return contains(in, b, a); }
  if (sign == "not in") { return !contains(in, b, a); }
  bool const unordered =
      (a.is<double>() && std::isnan(a.number())) || (b.is<double>() && std::isnan(b.number()));
  int const order = compare(in, a, b);
  if (unordered) { return false; }
  if (sign == "<") { return order < 0; }
  if (sign == "<=") { return order <= 0; }
  return sign == ">" ? order > 0 : order >= 0;
}

/// `from[key]`; undefined where there is none.
[[nodiscard]] inline value item_of(runtime& in, value const& from, value const& key) {
  if (from.is_undefined()) { in.fail("an item is asked of " + describe_missing(from)); }
  if (auto const* entries = entries_of(from)) {
    in.charge(entries->items.size() / 16);
    auto const* found = key.is_text() ? entries->find(key.text()) : nullptr;
    return found != nullptr ? *found : value::missing(in.text(key));
  }
  bool const indexable = from.is<list_ptr>() || from.is_text();
  if (!indexable || !key.is_integral()) { return value::missing(in.text(key)); }
  if (from.is_text()) { in.charge(from.text().size()); }
  auto const letters = from.is_text() ? characters(from.text()) : std::vector<std::string_view>{};
  auto const size =
      static_cast<std::int64_t>(from.is_text() ? letters.size() : from.items().size());
  std::int64_t const index = key.integer() < 0 ? key.integer() + size : key.integer();
  if (index < 0 || index >= size) {
    return value::missing("item " + std::to_string(key.integer()));
  }
  auto const at = static_cast<std::size_t>(index);
  return from.is_text() ? value{std::string{letters[at]}} : from.items()[at];
}

/// `from[begin:end:step]` of a list or string; undefined and none bounds stand for the ends.
[[nodiscard]] inline value slice_of(
    runtime& in, value const& from, value const& begin, value const& end, value const& by) {
  if (!from.is_text() && !from.is<list_ptr>()) {
    in.fail("a slice is asked of " + kind_name(from));
  }
  in.charge(from.is_text() ? from.text().size() : from.items().size() / 16);
  auto const letters = from.is_text() ? characters(from.text()) : std::vector<std::string_view>{};
  auto const size =
      static_cast<std::int64_t>(from.is_text() ? letters.size() : from.items().size());
  auto const bound = [&](value const& of, std::int64_t otherwise) {
    if (of.is_undefined() || of.is<none>()) { return otherwise; }
    if (!of.is_integral()) {
      in.fail("the bounds of a slice are whole numbers, not " + kind_name(of));
    }
    return of.integer();
  };
  std::int64_t const step = bound(by, 1);
  if (step == 0) { in.fail("a slice has a step of zero"); }
  std::int64_t const low = step > 0 ? 0 : -1;
  std::int64_t const high = step > 0 ? size : size - 1;
  auto const clamp = [&](std::int64_t at) {
    return std::clamp(at < 0 && at >= -size ? at + size : at < 0 ? low : at, low, high);
  };
  bool const from_end = begin.is_undefined() || begin.is<none>();
  bool const to_end = end.is_undefined() || end.is<none>();
  std::int64_t const first = from_end ? (step > 0 ? 0 : size - 1) : clamp(bound(begin, 0));
  std::int64_t const last = to_end ? (step > 0 ? size : -1) : clamp(bound(end, 0));
  std::string text;
  std::vector<value> items;
  for (std::int64_t at = first; step > 0 ? at < last : at > last;) {
    if (from.is_text()) {
      text += letters[static_cast<std::size_t>(at)];
    } else {
      items.push_back(from.items()[static_cast<std::size_t>(at)]);
    }
    if (__builtin_add_overflow(at, step, &at)) { break; }
  }
  return from.is_text() ? in.made(std::move(text))
                        : in.made(std::move(items), from.as<list_ptr>()->is_tuple);
}

}  // namespace terrace::tokenize::jinja
