// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdio>
#include <string>
#include <string_view>

namespace terrace::observe {

namespace detail {

/// Bytes of the well-formed UTF-8 character at the start of `text`; 0 if there is none.
[[nodiscard]] inline std::size_t utf8_length(std::string_view text) noexcept {
  auto const byte = [text](std::size_t at) { return static_cast<unsigned char>(text[at]); };
  unsigned char const lead = byte(0);
  std::size_t const length = lead < 0x80   ? 1
                             : lead < 0xC2 ? 0
                             : lead < 0xE0 ? 2
                             : lead < 0xF0 ? 3
                             : lead < 0xF5 ? 4
                                           : 0;
  if (length > text.size()) { return 0; }
  for (std::size_t at = 1; at < length; ++at) {
    if ((byte(at) & 0xC0U) != 0x80U) { return 0; }
  }
  bool const overlong = (lead == 0xE0 && byte(1) < 0xA0) || (lead == 0xF0 && byte(1) < 0x90);
  bool const outside = (lead == 0xED && byte(1) > 0x9F) || (lead == 0xF4 && byte(1) > 0x8F);
  return overlong || outside ? 0 : length;
}

}  // namespace detail

/// `text` as a JSON string with its quotes. Bytes that are not UTF-8 become U+FFFD: names come from
/// model files.
[[nodiscard]] inline std::string json_quoted(std::string_view text) {
  std::string quoted{'"'};
  while (!text.empty()) {
    std::size_t const length = detail::utf8_length(text);
    char const c = text.front();
    if (length == 0) {
      quoted += "\\ufffd";
    } else if (c == '"' || c == '\\') {
      quoted += {'\\', c};
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char escape[8];
      std::snprintf(escape, sizeof escape, "\\u%04x", static_cast<unsigned>(c));
      quoted += escape;
    } else {
      quoted += text.substr(0, length);
    }
    text.remove_prefix(length == 0 ? 1 : length);
  }
  return quoted += '"';
}

/// `value` as a JSON number, short and exact; null if it is not finite.
[[nodiscard]] inline std::string json_number(double value) {
  if (!std::isfinite(value)) { return "null"; }
  char text[32];
  for (int digits : {6, 15, 17}) {
    std::snprintf(text, sizeof text, "%.*g", digits, value);
    double back = 0;
    if (std::sscanf(text, "%lf", &back) == 1 && back == value) { break; }
  }
  return text;
}

}  // namespace terrace::observe
