// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/tokenize/jinja/value.hpp>
#include <terrace/tokenize/utf8.hpp>

#include <utf8proc.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace terrace::tokenize::jinja {

/// The characters of `text`, each as its bytes; bytes that are not UTF-8 stand for themselves.
[[nodiscard]] inline std::vector<std::string_view> characters(std::string_view text) {
  std::vector<std::string_view> all;
  all.reserve(text.size());
  while (!text.empty()) {
    std::size_t const bytes = read_utf8(text).bytes;
    all.push_back(text.substr(0, bytes));
    text.remove_prefix(bytes);
  }
  return all;
}

/// Python's `str.isspace` of one character.
[[nodiscard]] constexpr bool is_space(char32_t c) noexcept {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 ||
         c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
         c == 0x205F || c == 0x3000;
}

/// Whether `str.strip(set)` removes this character; without a set, white space.
[[nodiscard]] inline bool in_strip_set(std::string_view character,
                                       std::optional<std::string_view> set) {
  if (!set) {
    auto const unit = read_utf8(character);
    return unit.state == utf8_state::whole && is_space(unit.code);
  }
  return set->find(character) != std::string_view::npos;
}

[[nodiscard]] inline std::string_view strip(std::string_view text,
                                            std::optional<std::string_view> set = std::nullopt,
                                            bool left = true,
                                            bool right = true) {
  while (left && !text.empty()) {
    std::size_t const bytes = read_utf8(text).bytes;
    if (!in_strip_set(text.substr(0, bytes), set)) { break; }
    text.remove_prefix(bytes);
  }
  while (right && !text.empty()) {
    std::size_t at = text.size() - 1;
    while (at > 0 && text.size() - at < 4 &&
           (static_cast<unsigned char>(text[at]) & 0xC0U) == 0x80U) {
      --at;
    }
    if (!in_strip_set(text.substr(at), set)) { break; }
    text.remove_suffix(text.size() - at);
  }
  return text;
}

/// Every character through `change` (a utf8proc case mapping; characters that change their number
/// are kept).
template <class Change>
[[nodiscard]] std::string map_case(std::string_view text, Change&& change) {
  std::string result;
  result.reserve(text.size());
  while (!text.empty()) {
    auto const unit = read_utf8(text);
    if (unit.state == utf8_state::whole) {
      append_utf8(result, static_cast<char32_t>(change(static_cast<utf8proc_int32_t>(unit.code))));
    } else {
      result += text.substr(0, unit.bytes);
    }
    text.remove_prefix(unit.bytes);
  }
  return result;
}
[[nodiscard]] inline std::string upper(std::string_view text) {
  return map_case(text, utf8proc_toupper);
}
[[nodiscard]] inline std::string lower(std::string_view text) {
  return map_case(text, utf8proc_tolower);
}
[[nodiscard]] inline std::string capitalize(std::string_view text) {
  std::size_t const first = text.empty() ? 0 : read_utf8(text).bytes;
  return upper(text.substr(0, first)) + lower(text.substr(first));
}

[[nodiscard]] inline bool is_letter(utf8proc_int32_t code) {
  auto const category = utf8proc_category(code);
  return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
}
/// `str.title`: the first letter of every run of letters is upper case, the others lower.
[[nodiscard]] inline std::string title(std::string_view text) {
  bool inside = false;
  return map_case(text, [&](utf8proc_int32_t code) {
    auto const changed = inside ? utf8proc_tolower(code) : utf8proc_toupper(code);
    inside = is_letter(code);
    return changed;
  });
}

/// `str.replace`; `limit` below 0 replaces all.
[[nodiscard]] inline std::string replace(std::string_view text,
                                         std::string_view from,
                                         std::string_view to,
                                         std::int64_t limit) {
  std::string result;
  for (; limit != 0 && !from.empty(); --limit) {
    auto const at = text.find(from);
    if (at == std::string_view::npos) { break; }
    result.append(text.substr(0, at)).append(to);
    text.remove_prefix(at + from.size());
  }
  // Replacing nothing puts `to` in front of every character and at the end.
  for (; limit != 0 && from.empty(); --limit) {
    std::size_t const bytes = text.empty() ? 0 : read_utf8(text).bytes;
    result.append(to).append(text.substr(0, bytes));
    text.remove_prefix(bytes);
    if (bytes == 0) { break; }
  }
  return result.append(text);
}

/// `str.split` at `separator`, or at runs of white space without one; `limit` below 0 splits
/// everywhere.
[[nodiscard]] inline std::vector<value> split(std::string_view text,
                                              std::optional<std::string_view> separator,
                                              std::int64_t limit) {
  std::vector<value> parts;
  if (!separator) { text = strip(text, std::nullopt, true, false); }
  while (separator || !text.empty()) {
    std::size_t end = separator ? text.find(*separator) : 0;
    while (!separator && end < text.size() &&
           !in_strip_set(text.substr(end, read_utf8(text.substr(end)).bytes), std::nullopt)) {
      end += read_utf8(text.substr(end)).bytes;
    }
    if (limit-- == 0 || end >= text.size()) {
      parts.emplace_back(std::string{separator || end < text.size() ? text : text.substr(0, end)});
      break;
    }
    parts.emplace_back(std::string{text.substr(0, end)});
    text.remove_prefix(end + (separator ? separator->size() : 0));
    if (!separator) { text = strip(text, std::nullopt, true, false); }
  }
  return parts;
}

/// `str.splitlines` without the line ends.
[[nodiscard]] inline std::vector<std::string_view> split_lines(std::string_view text) {
  std::vector<std::string_view> lines;
  std::size_t begin = 0;
  for (std::size_t at = 0; at < text.size();) {
    auto const unit = read_utf8(text.substr(at));
    bool const ends = (unit.code >= 0x0A && unit.code <= 0x0D) ||
                      (unit.code >= 0x1C && unit.code <= 0x1E) || unit.code == 0x85 ||
                      unit.code == 0x2028 || unit.code == 0x2029;
    std::size_t const after =
        at + unit.bytes + (unit.code == '\r' && text.substr(at + 1).starts_with('\n') ? 1 : 0);
    if (ends) {
      lines.push_back(text.substr(begin, at - begin));
      begin = after;
    }
    at = ends ? after : at + unit.bytes;
  }
  if (begin < text.size()) { lines.push_back(text.substr(begin)); }
  return lines;
}

/// A float as Python's `repr` writes it: the shortest digits that read back, an exponent below 1e-4
/// and from 1e16 on.
[[nodiscard]] inline std::string float_text(double number) {
  if (std::isnan(number)) { return "nan"; }
  if (std::isinf(number)) { return number < 0 ? "-inf" : "inf"; }
  double const size = std::fabs(number);
  bool const scientific = size != 0 && (size < 1e-4 || size >= 1e16);
  char buffer[64];
  auto const end =
      std::to_chars(buffer,
                    buffer + sizeof buffer,
                    number,
                    scientific ? std::chars_format::scientific : std::chars_format::fixed)
          .ptr;
  std::string text{buffer, end};
  if (!scientific && text.find('.') == std::string::npos) { text += ".0"; }
  return text;
}

/// A string as Python's `repr` writes it.
[[nodiscard]] inline std::string python_literal(std::string_view text) {
  bool const has_single = text.find('\'') != std::string_view::npos;
  char const quote = has_single && text.find('"') == std::string_view::npos ? '"' : '\'';
  std::string result(1, quote);
  for (char const c : text) {
    static constexpr char hex[] = "0123456789abcdef";
    auto const byte = static_cast<unsigned char>(c);
    if (c == quote || c == '\\') {
      result += '\\';
      result += c;
    } else if (c == '\n' || c == '\r' || c == '\t') {
      result += c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t";
    } else if (byte < 0x20 || byte == 0x7F) {
      result += "\\x";
      result += hex[byte >> 4U];
      result += hex[byte & 15U];
    } else {
      result += c;
    }
  }
  return result + quote;
}

/// `str(value)`, or `repr(value)` inside a list or mapping.
[[nodiscard]] inline std::string to_text(value const& of, bool inside = false) {
  if (of.is_undefined()) { return inside ? "Undefined" : ""; }
  if (of.is<none>()) { return "None"; }
  if (of.is<bool>()) { return of.as<bool>() ? "True" : "False"; }
  if (of.is<std::int64_t>()) { return std::to_string(of.as<std::int64_t>()); }
  if (of.is<double>()) { return float_text(of.as<double>()); }
  if (of.is_text()) { return inside ? python_literal(of.text()) : of.text(); }
  if (auto const* list = of.get_if<list_ptr>()) {
    bool const tuple = (*list)->is_tuple;
    std::string text = tuple ? "(" : "[";
    for (auto const& item : (*list)->items) {
      text += (text.size() > 1 ? ", " : "") + to_text(item, true);
    }
    if (tuple && (*list)->items.size() == 1) { text += ','; }
    return text + (tuple ? ")" : "]");
  }
  if (auto const* dict = of.get_if<dict_ptr>()) {
    std::string text = "{";
    for (auto const& [key, item] : (*dict)->items) {
      text += (text.size() > 1 ? ", " : "") + python_literal(key) + ": " + to_text(item, true);
    }
    return text + "}";
  }
  return "<" + kind_name(of).substr(2) + ">";
}

}  // namespace terrace::tokenize::jinja
