// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/error.hpp>
#include <terrace/tokenize/jinja/interpreter.hpp>
#include <terrace/tokenize/jinja/parser.hpp>
#include <terrace/tokenize/jinja/runtime.hpp>
#include <terrace/tokenize/jinja/syntax.hpp>
#include <terrace/tokenize/jinja/value.hpp>
#include <terrace/tokenize/utf8.hpp>

#include <ctime>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace terrace::tokenize::jinja {

/// A parsed template in the subset of Jinja that chat templates use, with the settings they are
/// written for: trim_blocks and lstrip_blocks on, no escaping, undefined values print as nothing.
///
/// Errors: the constructor and `render` throw format_error or not_supported with the line; `raise_exception` in a
///         template becomes a contract_error. Whatever the template, both end.
/// Source: the Jinja 3.1 template language; the environment of Hugging Face's chat templates.
class program {
 public:
  explicit program(std::string_view source) {
    if (valid_utf8_prefix(source) != source.size()) {
      throw format_error{"the chat template is not UTF-8"};
    }
    parser reader{source};
    body_ = reader.parse();
    free_variables_ = reader.free_variables();
  }

  /// Whether the template reads `name` before it gives it a value itself, so that passing it can
  /// have an effect.
  [[nodiscard]] bool uses_variable(std::string_view name) const {
    return free_variables_.contains(name);
  }

  /// `now` is what `strftime_now` shows, in local time.
  [[nodiscard]] std::string render(std::vector<std::pair<std::string, value>> variables,
                                   std::time_t now,
                                   render_limits limits = {}) const {
    runtime in;
    in.limits = limits;
    in.now = now;
    return interpreter{in, std::move(variables)}.run(body_);
  }

 private:
  block body_;
  std::set<std::string, std::less<>> free_variables_;
};

}  // namespace terrace::tokenize::jinja
