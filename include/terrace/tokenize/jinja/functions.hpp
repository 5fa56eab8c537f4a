// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/error.hpp>
#include <terrace/tokenize/jinja/filter_functions.hpp>
#include <terrace/tokenize/jinja/runtime.hpp>
#include <terrace/tokenize/jinja/value.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace terrace::tokenize::jinja {
namespace detail {

/// Named arguments, after the entries of a mapping given as the only positional one.
[[nodiscard]] inline dict_data entries_from(runtime& in,
                                            std::string_view who,
                                            call_arguments const& arguments) {
  dict_data dict;
  if (!arguments.positional.empty()) {
    auto const* entries = entries_of(arguments.positional[0]);
    if (entries == nullptr || arguments.positional.size() > 1) {
      in.fail("`" + std::string{who} + "` takes one mapping and named arguments");
    }
    in.charge(entries->items.size());
    dict = *entries;
  }
  for (auto const& [name, item] : arguments.named) { dict.assign(name, item); }
  return dict;
}

[[nodiscard]] inline value make_namespace(runtime& in, call_arguments const& arguments) {
  in.spaces.push_back(std::make_unique<dict_data>(entries_from(in, "namespace", arguments)));
  return in.spaces.back().get();
}

[[nodiscard]] inline value make_dict_from(runtime& in, call_arguments const& arguments) {
  return make_dict(entries_from(in, "dict", arguments));
}

[[nodiscard]] inline value range(runtime& in, call_arguments const& arguments) {
  auto const given = arguments.bind(in, "range", {"start", "stop", "step"});
  bool const only_stop = given[1].is_undefined();
  std::int64_t const first = only_stop ? 0 : whole_or(in, given[0], 0);
  std::int64_t const last = whole_or(in, only_stop ? given[0] : given[1], 0);
  std::int64_t const step = whole_or(in, given[2], 1);
  if (step == 0) { in.fail("`range` has a step of zero"); }
  std::vector<value> numbers;
  for (std::int64_t at = first; step > 0 ? at < last : at > last;) {
    in.charge(1);
    numbers.emplace_back(at);
    if (__builtin_add_overflow(at, step, &at)) { break; }
  }
  return make_list(std::move(numbers));
}

[[nodiscard]] inline value raise_exception(runtime& in, call_arguments const& arguments) {
  std::string const reason = in.text(arguments.bind(in, "raise_exception", {"message"})[0]);
  throw contract_error{"the chat template refuses these messages (line " + std::to_string(in.line) +
                       "): " + reason};
}

[[nodiscard]] inline value strftime_now(runtime& in, call_arguments const& arguments) {
  std::string const format = in.text(arguments.bind(in, "strftime_now", {"format"})[0]);
  std::tm parts{};
  if (localtime_r(&in.now, &parts) == nullptr) { in.fail("the current time cannot be shown"); }
  std::array<char, 512> buffer{};
  std::size_t const length = std::strftime(buffer.data(), buffer.size(), format.c_str(), &parts);
  if (length == 0 && !format.empty()) {
    in.fail("`strftime_now` makes nothing, or too much, of `" + format + "`");
  }
  return std::string{buffer.data(), length};
}

}  // namespace detail

/// A function that every template may call.
struct function final : callable {
  using body = value (*)(runtime& in, call_arguments const& arguments);
  explicit function(body run) : run_{run} {}
  [[nodiscard]] value call(runtime& in, call_arguments const& arguments) const override {
    return run_(in, arguments);
  }

 private:
  body run_;
};

/// The functions of the environment by name.
[[nodiscard]] inline std::vector<std::pair<std::string_view, value>> environment_functions() {
  std::vector<std::pair<std::string_view, value>> all;
  auto const add = [&](std::string_view name, function::body run) {
    all.emplace_back(name, callable_ptr{std::make_shared<function const>(run)});
  };
  add("namespace", detail::make_namespace);
  add("dict", detail::make_dict_from);
  add("range", detail::range);
  add("raise_exception", detail::raise_exception);
  add("strftime_now", detail::strftime_now);
  return all;
}

}  // namespace terrace::tokenize::jinja
