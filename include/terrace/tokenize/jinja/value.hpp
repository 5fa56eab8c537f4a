// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/error.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace terrace::tokenize::jinja {

class value;
struct runtime;
struct call_arguments;

/// What a missing variable or attribute gives; prints as nothing, is false, and refuses to be used
/// further.
struct undefined {
  std::shared_ptr<std::string const> what;  ///< its name, for the error sentence; may be null
};
struct none {};

/// How large a value is when it is walked, shared parts counted as often as they are met. Walking
/// recurses and printing multiplies shared parts, so both are bounded where a value is made.
struct value_size {
  static constexpr int depth_limit = 120;
  static constexpr std::uint64_t weight_limit = 20'000'000;

  int depth = 0;             ///< lists and mappings inside one another
  std::uint64_t weight = 1;  ///< values, and 16-byte units of text

  void contain(value_size const& part) noexcept {
    depth = std::max(depth, part.depth + 1);
    weight += part.weight;
  }
  void check() const {
    if (depth > depth_limit || weight > weight_limit) {
      throw format_error{"the chat template or its messages build a value nested " +
                         std::to_string(depth) + " deep with " + std::to_string(weight) +
                         " parts; the limits are " + std::to_string(depth_limit) + " and " +
                         std::to_string(weight_limit)};
    }
  }
};

/// A list or a tuple; they differ in how they print.
struct list_data {
  std::vector<value> items;
  bool is_tuple = false;
  value_size size{};
};

/// A mapping with string keys in order of insertion.
struct dict_data {
  std::vector<std::pair<std::string, value>> items;
  value_size size{};  ///< kept by `make_dict`

  [[nodiscard]] value const* find(std::string_view key) const noexcept;
  void assign(std::string key, value item);
};

/// The state behind `loop` inside a for block.
struct loop_data {
  std::shared_ptr<list_data const> items;
  std::size_t index = 0;
};

/// Something a template can call: a macro or a function of the environment.
struct callable {
  virtual ~callable() = default;
  [[nodiscard]] virtual value call(runtime& in, call_arguments const& arguments) const = 0;
};

using text_ptr = std::shared_ptr<std::string const>;
using list_ptr = std::shared_ptr<list_data const>;
using dict_ptr = std::shared_ptr<dict_data const>;
using loop_ptr = std::shared_ptr<loop_data>;
using callable_ptr = std::shared_ptr<callable const>;

/// A value of the template language. Copies are cheap and share; only namespaces change after they
/// are made. A namespace is a dict owned by the running template, so that none can keep itself
/// alive in a cycle.
class value {
 public:
  using storage = std::variant<undefined,
                               none,
                               bool,
                               std::int64_t,
                               double,
                               text_ptr,
                               list_ptr,
                               dict_ptr,
                               dict_data*,
                               loop_ptr,
                               callable_ptr>;

  value() = default;
  value(none) : data_{none{}} {}
  value(bool flag) : data_{flag} {}
  value(std::int64_t number) : data_{number} {}
  value(double number) : data_{number} {}
  value(std::string text) : data_{std::make_shared<std::string const>(std::move(text))} {}
  value(char const* text) : value{std::string{text}} {}
  value(list_ptr list) : data_{std::move(list)} {}
  value(dict_ptr dict) : data_{std::move(dict)} {}
  value(dict_data* space) : data_{space} {}
  value(loop_ptr loop) : data_{std::move(loop)} {}
  value(callable_ptr function) : data_{std::move(function)} {}

  [[nodiscard]] static value missing(std::string what) {
    value result;
    result.data_ = undefined{std::make_shared<std::string const>(std::move(what))};
    return result;
  }

  template <class T>
  [[nodiscard]] bool is() const noexcept {
    return std::holds_alternative<T>(data_);
  }
  template <class T>
  [[nodiscard]] T const& as() const {
    return std::get<T>(data_);
  }
  template <class T>
  [[nodiscard]] T const* get_if() const noexcept {
    return std::get_if<T>(&data_);
  }

  [[nodiscard]] bool is_undefined() const noexcept { return is<undefined>(); }
  [[nodiscard]] bool is_text() const noexcept { return is<text_ptr>(); }
  [[nodiscard]] std::string const& text() const { return *as<text_ptr>(); }
  [[nodiscard]] std::vector<value> const& items() const { return as<list_ptr>()->items; }
  /// Booleans count as 0 and 1, as in Python.
  [[nodiscard]] bool is_integral() const noexcept { return is<bool>() || is<std::int64_t>(); }
  [[nodiscard]] bool is_number() const noexcept { return is_integral() || is<double>(); }
  [[nodiscard]] std::int64_t integer() const {
    return is<bool>() ? as<bool>() : as<std::int64_t>();
  }
  [[nodiscard]] double number() const {
    return is<double>() ? as<double>() : static_cast<double>(integer());
  }

  [[nodiscard]] value_size size() const noexcept {
    if (is_text()) { return {.depth = 0, .weight = 1 + text().size() / 16}; }
    if (auto const* list = get_if<list_ptr>()) { return (*list)->size; }
    if (auto const* dict = get_if<dict_ptr>()) { return (*dict)->size; }
    return {};
  }

  [[nodiscard]] bool truthy() const noexcept {
    if (is_number()) { return number() != 0; }
    if (is_text()) { return !text().empty(); }
    if (is<list_ptr>()) { return !items().empty(); }
    if (auto const* dict = get_if<dict_ptr>()) { return !(*dict)->items.empty(); }
    return !is_undefined() && !is<none>();
  }

 private:
  storage data_;
};

inline value const* dict_data::find(std::string_view key) const noexcept {
  auto const found = std::find_if(
      items.begin(), items.end(), [&](auto const& entry) { return entry.first == key; });
  return found == items.end() ? nullptr : &found->second;
}

inline void dict_data::assign(std::string key, value item) {
  for (auto& entry : items) {
    if (entry.first == key) {
      entry.second = std::move(item);
      return;
    }
  }
  items.emplace_back(std::move(key), std::move(item));
}

[[nodiscard]] inline value make_list(std::vector<value> items, bool is_tuple = false) {
  list_data list{.items = std::move(items), .is_tuple = is_tuple};
  for (auto const& item : list.items) { list.size.contain(item.size()); }
  list.size.check();
  return list_ptr{std::make_shared<list_data const>(std::move(list))};
}
[[nodiscard]] inline value make_dict(dict_data dict) {
  dict.size = {};
  for (auto const& [key, item] : dict.items) { dict.size.contain(item.size()); }
  dict.size.check();
  return dict_ptr{std::make_shared<dict_data const>(std::move(dict))};
}

/// The entries of a mapping or namespace, or null.
[[nodiscard]] inline dict_data const* entries_of(value const& from) noexcept {
  if (auto const* dict = from.get_if<dict_ptr>()) { return dict->get(); }
  auto const* space = from.get_if<dict_data*>();
  return space == nullptr ? nullptr : *space;
}

/// Equality as in Python: numbers by value, sequences and mappings by content, the rest by
/// identity.
[[nodiscard]] inline bool equal(value const& a, value const& b) {
  if (a.is_number() && b.is_number()) {
    return a.is_integral() && b.is_integral() ? a.integer() == b.integer()
                                              : a.number() == b.number();
  }
  if (a.is_text() && b.is_text()) { return a.text() == b.text(); }
  if (a.is<list_ptr>() && b.is<list_ptr>()) {
    return std::equal(
        a.items().begin(), a.items().end(), b.items().begin(), b.items().end(), equal);
  }
  if (a.is<dict_ptr>() && b.is<dict_ptr>()) {
    auto const& left = *a.as<dict_ptr>();
    auto const& right = *b.as<dict_ptr>();
    return left.items.size() == right.items.size() &&
           std::all_of(left.items.begin(), left.items.end(), [&](auto const& entry) {
             auto const* other = right.find(entry.first);
             return other != nullptr && equal(entry.second, *other);
           });
  }
  if (a.is<dict_data*>() && b.is<dict_data*>()) { return a.as<dict_data*>() == b.as<dict_data*>(); }
  return (a.is<none>() && b.is<none>()) || (a.is_undefined() && b.is_undefined());
}

/// What a value is, for error sentences.
[[nodiscard]] inline std::string kind_name(value const& of) {
  if (of.is_undefined()) { return "an undefined value"; }
  if (of.is<none>()) { return "none"; }
  if (of.is<bool>()) { return "a boolean"; }
  if (of.is_number()) { return "a number"; }
  if (of.is_text()) { return "a string"; }
  if (of.is<list_ptr>()) { return "a list"; }
  if (of.is<dict_ptr>()) { return "a mapping"; }
  return of.is<callable_ptr>() ? "a function" : of.is<loop_ptr>() ? "a loop" : "a namespace";
}

}  // namespace terrace::tokenize::jinja
