// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/error.hpp>
#include <terrace/tokenize/jinja/runtime.hpp>
#include <terrace/tokenize/jinja/text.hpp>
#include <terrace/tokenize/jinja/value.hpp>

#include <nlohmann/json.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace terrace::tokenize::jinja {

/// The template value of a JSON value; keys keep their order.
[[nodiscard]] inline value from_json(nlohmann::ordered_json const& json, int depth = 0) {
  if (depth > value_size::depth_limit) {
    throw format_error{"messages nested more than " + std::to_string(value_size::depth_limit) +
                       " deep"};
  }
  if (json.is_boolean()) { return json.get<bool>(); }
  if (json.is_number_unsigned() &&
      json.get<std::uint64_t>() >
          static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
    throw format_error{"the whole number " + json.dump() + " in the messages is too large"};
  }
  if (json.is_number_integer()) { return json.get<std::int64_t>(); }
  if (json.is_number_float()) { return json.get<double>(); }
  if (json.is_string()) { return json.get<std::string>(); }
  if (json.is_array()) {
    std::vector<value> items;
    for (auto const& item : json) { items.push_back(from_json(item, depth + 1)); }
    return make_list(std::move(items));
  }
  if (json.is_object()) {
    dict_data dict;
    for (auto const& [key, item] : json.items()) { dict.assign(key, from_json(item, depth + 1)); }
    return make_dict(std::move(dict));
  }
  return none{};
}

/// How `tojson` lays its output out, as Python's `json.dumps`.
struct json_layout {
  int indent = -1;  ///< spaces per level; below 0 everything is on one line
  std::string item_separator = ", ";
  std::string key_separator = ": ";
  bool sort_keys = false;
  bool ensure_ascii = false;
};

namespace detail {

inline void append_json_unit(std::string& out, unsigned unit) {
  static constexpr char hex[] = "0123456789abcdef";
  out += "\\u";
  for (unsigned shift : {12U, 8U, 4U, 0U}) { out += hex[(unit >> shift) & 15U]; }
}

inline void append_json_text(std::string& out, std::string_view text, bool ensure_ascii) {
  out += '"';
  while (!text.empty()) {
    auto const unit = read_utf8(text);
    std::string_view const bytes = text.substr(0, unit.bytes);
    text.remove_prefix(unit.bytes);
    if (unit.state != utf8_state::whole) {
      out += "\xEF\xBF\xBD";
    } else if (unit.code == '"' || unit.code == '\\') {
      out += '\\';
      out += bytes;
    } else if (auto const at = std::string_view{"\b\f\n\r\t"}.find(bytes);
               at != std::string_view::npos) {
      out += '\\';
      out += "bfnrt"[at];
    } else if (unit.code < 0x20 || (ensure_ascii && unit.code > 0x7E && unit.code < 0x1'0000)) {
      append_json_unit(out, unit.code);
    } else if (ensure_ascii && unit.code >= 0x1'0000) {
      append_json_unit(out, 0xD800U + ((unit.code - 0x1'0000U) >> 10U));
      append_json_unit(out, 0xDC00U + ((unit.code - 0x1'0000U) & 0x3FFU));
    } else {
      out += bytes;
    }
  }
  out += '"';
}

class json_writer {
 public:
  json_writer(runtime& in, json_layout layout) : in_{in}, layout_{std::move(layout)} {}

  [[nodiscard]] std::string write(value const& of) {
    append(of, 1);
    return std::move(out_);
  }

 private:
  void append(value const& of, int level) {
    in_.charge(1);
    if (of.is_text()) {
      append_json_text(out_, of.text(), layout_.ensure_ascii);
    } else if (of.is<list_ptr>()) {
      append_all('[', ']', of.items(), level, [&](value const& item) { append(item, level + 1); });
    } else if (of.is<dict_ptr>()) {
      auto entries = of.as<dict_ptr>()->items;
      if (layout_.sort_keys) {
        std::sort(entries.begin(), entries.end(), [](auto const& a, auto const& b) {
          return a.first < b.first;
        });
      }
      append_all('{', '}', entries, level, [&](auto const& entry) {
        append_json_text(out_, entry.first, layout_.ensure_ascii);
        out_ += layout_.key_separator;
        append(entry.second, level + 1);
      });
    } else if (of.is<none>()) {
      out_ += "null";
    } else if (of.is<bool>()) {
      out_ += of.as<bool>() ? "true" : "false";
    } else if (of.is_number()) {
      bool const finite = of.is_integral() || std::isfinite(of.number());
      if (!finite) { in_.fail("tojson of a number that is not finite"); }
      out_ += to_text(of);
    } else {
      in_.fail("tojson of " + kind_name(of));
    }
  }

  template <class Range, class Each>
  void append_all(char open, char close, Range const& items, int level, Each&& each) {
    out_ += open;
    bool first = true;
    for (auto const& item : items) {
      if (!first) { out_ += layout_.item_separator; }
      first = false;
      break_line(level);
      each(item);
    }
    if (!first) { break_line(level - 1); }
    out_ += close;
  }
  void break_line(int level) {
    if (layout_.indent >= 0) {
      out_.append("\n").append(static_cast<std::size_t>(level * layout_.indent), ' ');
    }
  }

  runtime& in_;
  json_layout layout_;
  std::string out_;
};

}  // namespace detail

/// JSON text of a value, as the `tojson` of chat templates writes it: nothing is escaped for HTML.
[[nodiscard]] inline value to_json(runtime& in, value const& of, json_layout layout) {
  return in.made(detail::json_writer{in, std::move(layout)}.write(of));
}

}  // namespace terrace::tokenize::jinja
