// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/tokenize/jinja/filter_functions.hpp>
#include <terrace/tokenize/jinja/operators.hpp>
#include <terrace/tokenize/jinja/runtime.hpp>
#include <terrace/tokenize/jinja/text.hpp>
#include <terrace/tokenize/jinja/value.hpp>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace terrace::tokenize::jinja {
namespace detail {

/// Whether `text` starts (or ends) with a string, or with any string of a list.
[[nodiscard]] inline bool has_affix(runtime& in,
                                    std::string_view text,
                                    value const& affix,
                                    bool front) {
  if (affix.is<list_ptr>()) {
    return std::any_of(affix.items().begin(), affix.items().end(), [&](value const& each) {
      return has_affix(in, text, each, front);
    });
  }
  if (!affix.is_text()) {
    in.fail("`startswith` and `endswith` take a string or a tuple of strings, not " +
            kind_name(affix));
  }
  return front ? text.starts_with(affix.text()) : text.ends_with(affix.text());
}

/// Index in characters of a byte offset; -1 for none.
[[nodiscard]] inline value character_index(std::string_view text, std::size_t offset) {
  if (offset == std::string_view::npos) { return std::int64_t{-1}; }
  return static_cast<std::int64_t>(characters(text.substr(0, offset)).size());
}

[[nodiscard]] inline value split_text(runtime& in,
                                      std::string const& text,
                                      call_arguments const& arguments) {
  auto const given = arguments.bind(in, "split", {"sep", "maxsplit"});
  auto const separator = text_or_nothing(in, given[0]);
  if (separator && separator->empty()) { in.fail("`split` takes a separator that is not empty"); }
  return in.made(split(text,
                       separator ? std::optional<std::string_view>{*separator} : std::nullopt,
                       whole_or(in, given[1], -1)));
}

/// `strip`, `lstrip`, `rstrip`.
[[nodiscard]] inline value strip_text(runtime& in,
                                      std::string_view name,
                                      std::string const& text,
                                      call_arguments const& arguments) {
  auto const set = text_or_nothing(in, arguments.bind(in, name, {"chars"})[0]);
  auto const view = set ? std::optional<std::string_view>{*set} : std::nullopt;
  return in.made(std::string{strip(text, view, name != "rstrip", name != "lstrip")});
}

[[nodiscard]] inline std::string need_text(runtime& in,
                                           std::string_view name,
                                           call_arguments const& arguments) {
  auto const given = arguments.bind(in, name, {"text"})[0];
  if (!given.is_text()) {
    in.fail("`" + std::string{name} + "` takes a string, not " + kind_name(given));
  }
  return given.text();
}

[[nodiscard]] inline value count_text(std::string_view text, std::string_view part) {
  if (part.empty()) { return static_cast<std::int64_t>(characters(text).size() + 1); }
  std::int64_t count = 0;
  for (auto at = text.find(part); at != std::string_view::npos;
       at = text.find(part, at + part.size())) {
    ++count;
  }
  return count;
}

[[nodiscard]] inline bool all_digits(std::string_view text) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

/// Methods of strings; nothing if there is none of this name.
[[nodiscard]] inline std::optional<value> call_text_method(runtime& in,
                                                           std::string const& text,
                                                           std::string_view name,
                                                           call_arguments const& arguments) {
  auto const no_arguments = [&] { static_cast<void>(arguments.bind(in, name, {})); };
  auto const changed = [&](std::string (*change)(std::string_view)) {
    return (no_arguments(), in.made(change(text)));
  };
  if (name == "strip" || name == "lstrip" || name == "rstrip") {
    return strip_text(in, name, text, arguments);
  }
  if (name == "split") { return split_text(in, text, arguments); }
  if (name == "startswith" || name == "endswith") {
    return has_affix(in, text, arguments.bind(in, name, {"text"})[0], name == "startswith");
  }
  if (name == "upper") { return changed(upper); }
  if (name == "lower") { return changed(lower); }
  if (name == "title") { return changed(title); }
  if (name == "capitalize") { return changed(capitalize); }
  if (name == "replace") {
    return replace_all(in, text, arguments.bind(in, name, {"old", "new", "count"}));
  }
  if (name == "find") { return character_index(text, text.find(need_text(in, name, arguments))); }
  if (name == "rfind") { return character_index(text, text.rfind(need_text(in, name, arguments))); }
  if (name == "count") { return count_text(text, need_text(in, name, arguments)); }
  if (name == "join") { return join(in, arguments.bind(in, name, {"iterable"})[0], text, {}); }
  if (name == "isdigit") { return (no_arguments(), value{all_digits(text)}); }
  if (name == "removeprefix") {
    std::string const part = need_text(in, name, arguments);
    return in.made(text.starts_with(part) ? text.substr(part.size()) : text);
  }
  if (name == "removesuffix") {
    std::string const part = need_text(in, name, arguments);
    return in.made(text.ends_with(part) ? text.substr(0, text.size() - part.size()) : text);
  }
  if (name == "splitlines") {
    no_arguments();
    std::vector<value> lines;
    for (auto const line : split_lines(text)) { lines.emplace_back(std::string{line}); }
    return in.made(std::move(lines));
  }
  return std::nullopt;
}

/// Methods of mappings; nothing if there is none of this name.
[[nodiscard]] inline std::optional<value> call_dict_method(runtime& in,
                                                           value const& self,
                                                           std::string_view name,
                                                           call_arguments const& arguments) {
  if (name == "get") {
    auto const given = arguments.bind(in, name, {"key", "default"});
    auto const found = item_of(in, self, given[0]);
    return found.is_undefined() ? or_else(given[1], none{}) : found;
  }
  if (name != "items" && name != "keys" && name != "values") { return std::nullopt; }
  static_cast<void>(arguments.bind(in, name, {}));
  if (name == "items") { return items(in, self); }
  std::vector<value> parts;
  for (auto const& [key, item] : self.as<dict_ptr>()->items) {
    parts.push_back(name == "keys" ? value{key} : item);
  }
  return in.made(std::move(parts));
}

}  // namespace detail

/// `self.name(arguments)` for the methods of strings, mappings and lists; nothing if `self` has no
/// such method.
[[nodiscard]] inline std::optional<value> call_method(runtime& in,
                                                      value const& self,
                                                      std::string_view name,
                                                      call_arguments const& arguments) {
  in.charge(1);
  if (self.is_text()) {
    in.charge(self.text().size() / 16);
    return detail::call_text_method(in, self.text(), name, arguments);
  }
  if (self.is<dict_ptr>()) { return detail::call_dict_method(in, self, name, arguments); }
  if (self.is<list_ptr>() && (name == "index" || name == "count")) {
    auto const wanted = arguments.bind(in, name, {"value"})[0];
    auto const matches = [&](value const& each) { return in.same(each, wanted); };
    auto const& list = self.items();
    if (name == "count") {
      return static_cast<std::int64_t>(std::count_if(list.begin(), list.end(), matches));
    }
    auto const found = std::find_if(list.begin(), list.end(), matches);
    if (found == list.end()) { in.fail("`index` does not find the value in the list"); }
    return static_cast<std::int64_t>(found - list.begin());
  }
  return std::nullopt;
}

}  // namespace terrace::tokenize::jinja
