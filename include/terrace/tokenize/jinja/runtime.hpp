// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/error.hpp>
#include <terrace/tokenize/jinja/text.hpp>
#include <terrace/tokenize/jinja/value.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace terrace::tokenize::jinja {

/// What a rendering may cost, so that a hostile template ends: steps are expressions, statements
/// and 16-byte units of text or list entries made; depth counts expressions, blocks and macros
/// inside one another.
struct render_limits {
  std::uint64_t steps = 20'000'000;
  int depth = 600;
};

/// The state that functions, filters and the interpreter share during one rendering.
struct runtime {
  render_limits limits;
  std::time_t now = 0;  ///< what `strftime_now` shows
  std::uint64_t steps = 0;
  int depth = 0;
  int line = 1;                                    ///< of the template, where execution is
  std::vector<std::unique_ptr<dict_data>> spaces;  ///< every namespace made

  [[noreturn]] void fail(std::string const& what) const {
    throw format_error{"chat template, line " + std::to_string(line) + ": " + what};
  }
  [[noreturn]] void unsupported(std::string const& what) const {
    throw not_supported{"chat template, line " + std::to_string(line) + ": " + what +
                        " is not supported"};
  }
  void charge(std::uint64_t cost) {
    steps += cost;
    if (steps > limits.steps) {
      fail("rendering takes more than " + std::to_string(limits.steps) +
           " steps; the template does not seem to end");
    }
  }
  /// `str(of)`, paid for by what has to be walked.
  [[nodiscard]] std::string text(value const& of) {
    charge(of.size().weight);
    return to_text(of);
  }
  [[nodiscard]] bool same(value const& a, value const& b) {
    charge(std::min(a.size().weight, b.size().weight));
    return equal(a, b);
  }
  /// A string that was made, paid for by its length.
  [[nodiscard]] value made(std::string text) {
    charge(1 + text.size() / 16);
    return text;
  }
  [[nodiscard]] value made(std::vector<value> items, bool is_tuple = false) {
    charge(1 + items.size());
    return make_list(std::move(items), is_tuple);
  }

  /// Counts what is inside one another on the C++ stack.
  class level {
   public:
    explicit level(runtime& in) : in_{in} {
      in_.charge(1);
      if (++in_.depth > in_.limits.depth) {
        --in_.depth;
        in_.fail("blocks, expressions and macros run more than " +
                 std::to_string(in_.limits.depth) + " inside one another");
      }
    }
    ~level() { --in_.depth; }
    level(level const&) = delete;
    level& operator=(level const&) = delete;

   private:
    runtime& in_;
  };
};

/// Arguments of one call.
struct call_arguments {
  std::vector<value> positional;
  std::vector<std::pair<std::string, value>> named;

  /// The arguments in the order of `parameters`, undefined where none was given; anything else is
  /// refused.
  [[nodiscard]] std::vector<value> bind(runtime const& in,
                                        std::string_view who,
                                        std::span<std::string_view const> parameters) const {
    if (positional.size() > parameters.size()) {
      in.fail("`" + std::string{who} + "` takes " + std::to_string(parameters.size()) +
              " arguments, not " + std::to_string(positional.size()));
    }
    std::vector<value> bound = positional;
    bound.resize(parameters.size());
    for (auto const& [name, item] : named) {
      auto const at = std::find(parameters.begin(), parameters.end(), name);
      if (at == parameters.end()) {
        in.fail("`" + std::string{who} + "` has no argument `" + name + "`");
      }
      bound[static_cast<std::size_t>(at - parameters.begin())] = item;
    }
    return bound;
  }
  [[nodiscard]] std::vector<value> bind(runtime const& in,
                                        std::string_view who,
                                        std::initializer_list<std::string_view> parameters) const {
    return bind(in, who, std::span{parameters.begin(), parameters.size()});
  }
};

}  // namespace terrace::tokenize::jinja
