// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/tokenize/jinja/filter_functions.hpp>
#include <terrace/tokenize/jinja/runtime.hpp>
#include <terrace/tokenize/jinja/text.hpp>
#include <terrace/tokenize/jinja/value.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace terrace::tokenize::jinja {
[[nodiscard]] inline value apply_filter(runtime& in,
                                        std::string_view name,
                                        value const& of,
                                        call_arguments const& arguments);

namespace detail {

/// `map(attribute=...)` or `map(filter, arguments)`.
[[nodiscard]] inline value map(runtime& in, value const& of, call_arguments const& arguments) {
  std::vector<value> mapped;
  if (arguments.positional.empty()) {
    auto const given = arguments.bind(in, "map", {"attribute", "default"});
    for (auto const& item : sequence_of(in, of, "map")) {
      mapped.push_back(or_else(at_path(in, item, given[0]), given[1]));
    }
    return in.made(std::move(mapped));
  }
  call_arguments rest{{arguments.positional.begin() + 1, arguments.positional.end()},
                      arguments.named};
  std::string const filter = in.text(arguments.positional[0]);
  for (auto const& item : sequence_of(in, of, "map")) {
    mapped.push_back(apply_filter(in, filter, item, rest));
  }
  return in.made(std::move(mapped));
}

using bound_values = std::vector<value> const&;

struct filter {
  std::string_view name;
  std::array<std::string_view, 4> parameters;  ///< "" where there are fewer
  value (*apply)(runtime& in, value const& of, bound_values with);
};

/// Filters with a fixed list of parameters; `with` holds their values in that order, undefined
/// where none was given.
inline constexpr filter filters[] = {
    {"abs", {}, [](runtime& in, value const& of, bound_values) { return absolute(in, of); }},
    {"attr",
     {"name"},
     [](runtime& in, value const& of, bound_values with) { return item_of(in, of, with[0]); }},
    {"capitalize",
     {},
     [](runtime& in, value const& of, bound_values) { return in.made(capitalize(in.text(of))); }},
    {"count", {}, [](runtime& in, value const& of, bound_values) { return length(in, of); }},
    {"d", {"default_value", "boolean"}, fallback},
    {"default", {"default_value", "boolean"}, fallback},
    {"dictsort", {"case_sensitive", "by", "reverse"}, dictsort},
    {"first", {}, [](runtime& in, value const& of, bound_values) { return end_of(in, of, true); }},
    {"float",
     {"default"},
     [](runtime&, value const& of, bound_values with) {
       return to_real(of, or_else(with[0], 0.0));
     }},
    {"indent", {"width", "first", "blank"}, indent},
    {"int",
     {"default", "base"},
     [](runtime& in, value const& of, bound_values with) {
       return to_whole(in, of, or_else(with[0], std::int64_t{0}), with[1]);
     }},
    {"items", {}, [](runtime& in, value const& of, bound_values) { return items(in, of); }},
    {"join",
     {"d", "attribute"},
     [](runtime& in, value const& of, bound_values with) {
       return join(in, of, or_else(with[0], ""), with[1]);
     }},
    {"last", {}, [](runtime& in, value const& of, bound_values) { return end_of(in, of, false); }},
    {"length", {}, [](runtime& in, value const& of, bound_values) { return length(in, of); }},
    {"list",
     {},
     [](runtime& in, value const& of, bound_values) {
       return in.made(sequence_of(in, of, "list"));
     }},
    {"lower",
     {},
     [](runtime& in, value const& of, bound_values) { return in.made(lower(in.text(of))); }},
    {"max",
     {"case_sensitive", "attribute"},
     [](runtime& in, value const& of, bound_values with) {
       return extreme(in, of, true, with[0].truthy(), with[1]);
     }},
    {"min",
     {"case_sensitive", "attribute"},
     [](runtime& in, value const& of, bound_values with) {
       return extreme(in, of, false, with[0].truthy(), with[1]);
     }},
    {"replace", {"old", "new", "count"}, replace_all},
    {"reverse", {}, [](runtime& in, value const& of, bound_values) { return reverse(in, of); }},
    {"round",
     {"precision", "method"},
     [](runtime& in, value const& of, bound_values with) {
       return round(in, of, with[0], with[1]);
     }},
    {"safe", {}, [](runtime& in, value const& of, bound_values) { return in.made(in.text(of)); }},
    {"sort",
     {"reverse", "case_sensitive", "attribute"},
     [](runtime& in, value const& of, bound_values with) {
       return sort(in, of, with[0].truthy(), with[1].truthy(), with[2]);
     }},
    {"string", {}, [](runtime& in, value const& of, bound_values) { return in.made(in.text(of)); }},
    {"sum",
     {"attribute", "start"},
     [](runtime& in, value const& of, bound_values with) {
       return sum(in, of, with[0], or_else(with[1], std::int64_t{0}));
     }},
    {"title",
     {},
     [](runtime& in, value const& of, bound_values) { return in.made(title_words(in.text(of))); }},
    {"tojson", {"ensure_ascii", "indent", "separators", "sort_keys"}, tojson},
    {"trim", {"chars"}, trim},
    {"unique",
     {"case_sensitive", "attribute"},
     [](runtime& in, value const& of, bound_values with) {
       return unique(in, of, with[0].truthy(), with[1]);
     }},
    {"upper",
     {},
     [](runtime& in, value const& of, bound_values) { return in.made(upper(in.text(of))); }},
};

}  // namespace detail

/// `of | name(arguments)`.
[[nodiscard]] inline value apply_filter(runtime& in,
                                        std::string_view name,
                                        value const& of,
                                        call_arguments const& arguments) {
  in.charge(1);
  for (auto const& filter : detail::filters) {
    if (filter.name != name) { continue; }
    auto const count = std::find(filter.parameters.begin(), filter.parameters.end(), "") -
                       filter.parameters.begin();
    return filter.apply(
        in,
        of,
        arguments.bind(
            in, name, std::span{filter.parameters}.first(static_cast<std::size_t>(count))));
  }
  if (name == "map") { return detail::map(in, of, arguments); }
  bool const by_attribute = name.ends_with("attr");
  if (name == "select" || name == "selectattr") {
    return detail::select(in, of, arguments, by_attribute, true);
  }
  if (name == "reject" || name == "rejectattr") {
    return detail::select(in, of, arguments, by_attribute, false);
  }
  in.unsupported("the filter `" + std::string{name} + "`");
}

}  // namespace terrace::tokenize::jinja
