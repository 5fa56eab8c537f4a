// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/tokenize/jinja/json.hpp>
#include <terrace/tokenize/jinja/operators.hpp>
#include <terrace/tokenize/jinja/runtime.hpp>
#include <terrace/tokenize/jinja/tests.hpp>
#include <terrace/tokenize/jinja/text.hpp>
#include <terrace/tokenize/jinja/value.hpp>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace terrace::tokenize::jinja {

namespace detail {

[[nodiscard]] inline value or_else(value const& given, value otherwise) {
  return given.is_undefined() ? std::move(otherwise) : given;
}
[[nodiscard]] inline std::int64_t whole_or(runtime const& in,
                                           value const& given,
                                           std::int64_t otherwise) {
  if (given.is_undefined() || given.is<none>()) { return otherwise; }
  if (!given.is_integral()) { in.fail("expected a whole number, not " + kind_name(given)); }
  return given.integer();
}
[[nodiscard]] inline std::optional<std::string> text_or_nothing(runtime& in, value const& given) {
  return given.is_undefined() || given.is<none>() ? std::nullopt : std::optional{in.text(given)};
}

/// The value at a dotted path ("function.name", "0"); without a path the value itself.
[[nodiscard]] inline value at_path(runtime& in, value of, value const& path) {
  if (path.is_undefined() || path.is<none>()) { return of; }
  if (path.is_integral()) { return item_of(in, of, path); }
  for (auto const& step : split(in.text(path), ".", -1)) {
    std::string const& name = step.text();
    std::int64_t index = 0;
    auto const [end, code] = std::from_chars(name.data(), name.data() + name.size(), index);
    bool const numeric = code == std::errc{} && end == name.data() + name.size();
    of = item_of(in, of, numeric ? value{index} : step);
  }
  return of;
}

[[nodiscard]] inline value length(runtime& in, value const& of) {
  if (of.is_text()) {
    in.charge(of.text().size());
    return static_cast<std::int64_t>(characters(of.text()).size());
  }
  if (of.is<list_ptr>()) { return static_cast<std::int64_t>(of.items().size()); }
  if (of.is<dict_ptr>()) { return static_cast<std::int64_t>(of.as<dict_ptr>()->items.size()); }
  if (!of.is_undefined()) { in.fail("`length` of " + kind_name(of)); }
  return std::int64_t{0};
}

[[nodiscard]] inline value items(runtime& in, value const& of) {
  std::vector<value> pairs;
  if (!of.is<dict_ptr>() && !of.is_undefined()) { in.fail("`items` of " + kind_name(of)); }
  if (of.is<dict_ptr>()) {
    for (auto const& [key, item] : of.as<dict_ptr>()->items) {
      pairs.push_back(make_list({key, item}, true));
    }
  }
  return in.made(std::move(pairs));
}

/// `default`: the fallback replaces what is undefined or, with `boolean`, everything false.
[[nodiscard]] inline value fallback(runtime&, value const& of, std::vector<value> const& given) {
  bool const replaced = of.is_undefined() || (given[1].truthy() && !of.truthy());
  return replaced ? or_else(given[0], "") : of;
}

/// `first` and `last`.
[[nodiscard]] inline value end_of(runtime& in, value const& of, bool first) {
  auto const all = sequence_of(in, of, first ? "first" : "last");
  if (all.empty()) { return value::missing("an item of an empty sequence"); }
  return first ? all.front() : all.back();
}

[[nodiscard]] inline value trim(runtime& in, value const& of, std::vector<value> const& given) {
  std::string const text = in.text(of);
  auto const set = text_or_nothing(in, given[0]);
  return in.made(
      std::string{strip(text, set ? std::optional<std::string_view>{*set} : std::nullopt)});
}

[[nodiscard]] inline value join(runtime& in,
                                value const& of,
                                value const& separator,
                                value const& path) {
  std::string const between = in.text(separator);
  std::string text;
  bool first = true;
  for (auto const& item : sequence_of(in, of, "join")) {
    if (!first) { text += between; }
    first = false;
    text += in.text(at_path(in, item, path));
    in.charge(between.size() / 16);
  }
  return in.made(std::move(text));
}

[[nodiscard]] inline value replace_all(runtime& in,
                                       value const& of,
                                       std::vector<value> const& given) {
  std::string const text = in.text(of);
  std::string const from = in.text(given[0]);
  std::string const to = in.text(given[1]);
  std::uint64_t const most = from.empty() ? text.size() + 1 : text.size() / from.size();
  if (to.size() > 16) { in.charge(most / 16 * to.size()); }  // before the memory is taken
  return in.made(replace(text, from, to, whole_or(in, given[2], -1)));
}

/// `sort`, `unique`, `min` and `max` compare by this: the value at a path, strings without their
/// case unless asked.
[[nodiscard]] inline value sort_key(runtime& in,
                                    value const& item,
                                    value const& path,
                                    bool case_sensitive) {
  value const key = at_path(in, item, path);
  return key.is_text() && !case_sensitive ? in.made(lower(key.text())) : key;
}

[[nodiscard]] inline value sort(
    runtime& in, value const& of, bool reverse, bool case_sensitive, value const& path) {
  std::vector<std::pair<value, value>> keyed;
  for (auto const& item : sequence_of(in, of, "sort")) {
    keyed.emplace_back(sort_key(in, item, path, case_sensitive), item);
  }
  std::stable_sort(keyed.begin(), keyed.end(), [&](auto const& a, auto const& b) {
    return reverse ? compare(in, b.first, a.first) < 0 : compare(in, a.first, b.first) < 0;
  });
  std::vector<value> sorted;
  for (auto& [key, item] : keyed) { sorted.push_back(std::move(item)); }
  return in.made(std::move(sorted));
}

[[nodiscard]] inline value unique(runtime& in,
                                  value const& of,
                                  bool case_sensitive,
                                  value const& path) {
  std::vector<value> seen;
  std::vector<value> kept;
  for (auto const& item : sequence_of(in, of, "unique")) {
    value const key = sort_key(in, item, path, case_sensitive);
    if (std::any_of(
            seen.begin(), seen.end(), [&](value const& other) { return in.same(other, key); })) {
      continue;
    }
    seen.push_back(key);
    kept.push_back(item);
  }
  return in.made(std::move(kept));
}

[[nodiscard]] inline value reverse(runtime& in, value const& of) {
  auto list = sequence_of(in, of, "reverse");
  std::reverse(list.begin(), list.end());
  if (!of.is_text()) { return in.made(std::move(list)); }
  std::string text;
  for (auto const& character : list) { text += character.text(); }
  return in.made(std::move(text));
}

[[nodiscard]] inline value extreme(
    runtime& in, value const& of, bool largest, bool case_sensitive, value const& path) {
  value const sorted = sort(in, of, largest, case_sensitive, path);
  return sorted.items().empty() ? value::missing("an item of an empty sequence")
                                : sorted.items().front();
}

[[nodiscard]] inline value sum(runtime& in, value const& of, value const& path, value total) {
  for (auto const& item : sequence_of(in, of, "sum")) {
    total = arithmetic(in, "+", total, at_path(in, item, path));
  }
  return total;
}

[[nodiscard]] inline value indent(runtime& in, value const& of, std::vector<value> const& given) {
  std::string const text = in.text(of);
  bool const first = given[1].truthy();
  bool const blank = given[2].truthy();
  std::int64_t const width =
      given[0].is_text() ? 0 : std::clamp<std::int64_t>(whole_or(in, given[0], 4), 0, 4096);
  std::string const space =
      given[0].is_text() ? given[0].text() : std::string(static_cast<std::size_t>(width), ' ');
  auto lines = split_lines(text);
  if (text.empty() || text.ends_with('\n')) {
    lines.emplace_back();
  }  // Jinja appends a line end before it splits
  in.charge(lines.size() * (1 + space.size() / 16));
  std::string result = first ? space : "";
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) { result += '\n'; }
    if (i > 0 && (blank || !lines[i].empty())) { result += space; }
    result += lines[i];
  }
  return in.made(std::move(result));
}

/// The leading white space, sign and digits of Python's `int(text)`; `otherwise` for anything else.
[[nodiscard]] inline value to_whole(runtime const& in,
                                    value const& of,
                                    value otherwise,
                                    value const& base) {
  if (of.is_integral()) { return of.integer(); }
  constexpr double limit = 9.2e18;
  if (of.is<double>()) {
    return std::fabs(of.number()) < limit ? value{static_cast<std::int64_t>(of.number())}
                                          : std::move(otherwise);
  }
  if (!of.is_text()) { return otherwise; }
  auto text = strip(of.text());
  bool const plus = text.starts_with('+');
  if (plus) { text.remove_prefix(1); }
  std::int64_t const radix = whole_or(in, base, 10);
  if (radix < 2 || radix > 36) { in.fail("`int` takes a base from 2 to 36"); }
  std::int64_t number = 0;
  auto const [end, code] =
      std::from_chars(text.data(), text.data() + text.size(), number, static_cast<int>(radix));
  if (code == std::errc{} && end == text.data() + text.size() && !(plus && text.starts_with('-'))) {
    return number;
  }
  if (radix != 10) { return otherwise; }
  double real = 0;
  auto const [real_end, real_code] = std::from_chars(text.data(), text.data() + text.size(), real);
  bool const fits =
      real_code == std::errc{} && real_end == text.data() + text.size() && std::fabs(real) < limit;
  return fits ? value{static_cast<std::int64_t>(real)} : std::move(otherwise);
}

[[nodiscard]] inline value to_real(value const& of, value otherwise) {
  if (of.is_number()) { return of.number(); }
  if (!of.is_text()) { return otherwise; }
  auto const text = strip(of.text());
  double real = 0;
  auto const [end, code] = std::from_chars(text.data(), text.data() + text.size(), real);
  return code == std::errc{} && end == text.data() + text.size() ? value{real}
                                                                 : std::move(otherwise);
}

[[nodiscard]] inline value round(runtime const& in,
                                 value const& of,
                                 value const& places,
                                 value const& method) {
  if (!of.is_number()) { in.fail("`round` of " + kind_name(of)); }
  std::string const how = method.is_text() ? method.text() : "common";
  std::int64_t const digits = whole_or(in, places, 0);
  if (digits < 0 || digits > 30) { in.fail("`round` takes 0 to 30 places"); }
  if (how == "ceil" || how == "floor") {
    double const scale = std::pow(10.0, static_cast<double>(digits));
    return (how == "ceil" ? std::ceil(of.number() * scale) : std::floor(of.number() * scale)) /
           scale;
  }
  if (how != "common") { in.fail("`round` knows common, ceil and floor, not `" + how + "`"); }
  if (of.is_integral()) { return of.integer(); }
  char buffer[400];
  std::snprintf(buffer, sizeof buffer, "%.*f", static_cast<int>(digits), of.number());
  return std::strtod(buffer, nullptr);
}

[[nodiscard]] inline value absolute(runtime const& in, value const& of) {
  if (of.is<double>()) { return std::fabs(of.number()); }
  if (!of.is_integral() || of.integer() == INT64_MIN) { in.fail("`abs` of " + kind_name(of)); }
  return of.integer() < 0 ? -of.integer() : of.integer();
}

/// Jinja's `title` filter: a word starts after white space, a hyphen or an opening bracket.
[[nodiscard]] inline std::string title_words(std::string_view text) {
  bool inside = false;
  return map_case(text, [&](utf8proc_int32_t code) {
    bool const separates = is_space(static_cast<char32_t>(code)) ||
                           (code < 0x80 && std::string_view{"-({[<"}.find(
                                               static_cast<char>(code)) != std::string_view::npos);
    auto const changed = inside ? utf8proc_tolower(code) : utf8proc_toupper(code);
    inside = !separates;
    return changed;
  });
}

/// Parameters: ensure_ascii, indent, separators, sort_keys; that order is the chat environment's,
/// not Jinja's.
[[nodiscard]] inline value tojson(runtime& in, value const& of, std::vector<value> const& given) {
  json_layout layout;
  layout.ensure_ascii = given[0].truthy();
  if (!given[1].is_undefined() && !given[1].is<none>()) {
    layout.indent = static_cast<int>(std::clamp<std::int64_t>(whole_or(in, given[1], 0), 0, 64));
    layout.item_separator = ",";
  }
  if (given[2].is<list_ptr>() && given[2].items().size() == 2) {
    layout.item_separator = in.text(given[2].items()[0]);
    layout.key_separator = in.text(given[2].items()[1]);
  } else if (!given[2].is_undefined() && !given[2].is<none>()) {
    in.fail("`tojson` takes two separators");
  }
  layout.sort_keys = given[3].truthy();
  return to_json(in, of, std::move(layout));
}

/// `select`, `reject`, `selectattr` and `rejectattr`: those items whose value passes the test, or
/// is true without one.
[[nodiscard]] inline value select(
    runtime& in, value const& of, call_arguments const& arguments, bool by_attribute, bool wanted) {
  std::size_t const skipped = by_attribute ? 1 : 0;
  auto const& given = arguments.positional;
  if (given.size() < skipped) {
    in.fail("`selectattr` and `rejectattr` need the name of an attribute");
  }
  value const path = by_attribute ? given[0] : value{};
  std::string const test = given.size() > skipped ? in.text(given[skipped]) : "";
  call_arguments operands;
  if (!test.empty()) {
    operands.positional.assign(given.begin() + static_cast<std::ptrdiff_t>(skipped) + 1,
                               given.end());
  }
  std::vector<value> kept;
  for (auto const& item : sequence_of(in, of, "select")) {
    value const subject = at_path(in, item, path);
    bool const passes = test.empty() ? subject.truthy() : apply_test(in, test, subject, operands);
    if (passes == wanted) { kept.push_back(item); }
  }
  return in.made(std::move(kept));
}

[[nodiscard]] inline value dictsort(runtime& in, value const& of, std::vector<value> const& given) {
  std::string const by = given[1].is_text() ? given[1].text() : "key";
  if (by != "key" && by != "value") {
    in.fail("`dictsort` sorts by key or value, not by `" + by + "`");
  }
  return sort(
      in, items(in, of), given[2].truthy(), given[0].truthy(), std::int64_t{by == "key" ? 0 : 1});
}

}  // namespace detail
}  // namespace terrace::tokenize::jinja
