// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

namespace terrace::format::detail {

/// `name` in backquotes, safe to print: control bytes become \xNN, and a long name keeps its first
/// 96 bytes.
[[nodiscard]] inline std::string in_quotes(std::string_view name) {
  constexpr std::size_t longest = 96;
  std::string text = "`";
  for (char const c : name.substr(0, longest)) {
    auto const byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7F) {
      char code[8];
      std::snprintf(code, sizeof code, "\\x%02x", byte);
      text += code;
    } else {
      text += c;
    }
  }
  if (name.size() > longest) { text += "..."; }
  return text + "`";
}

/// a * b, or nothing when the product does not fit.
[[nodiscard]] constexpr std::optional<std::uint64_t> checked_product(std::uint64_t a,
                                                                     std::uint64_t b) noexcept {
  if (b != 0 && a > std::numeric_limits<std::uint64_t>::max() / b) { return std::nullopt; }
  return a * b;
}

/// A decimal number without sign, spaces or leading zeros that is at most `most`.
[[nodiscard]] inline std::optional<std::uint32_t> parse_index(std::string_view digits,
                                                              std::uint32_t most) noexcept {
  if (digits.size() > 1 && digits.front() == '0') { return std::nullopt; }
  std::uint32_t value = 0;
  auto const [end, code] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (code != std::errc{} || end != digits.data() + digits.size() || value > most) {
    return std::nullopt;
  }
  return value;
}

}  // namespace terrace::format::detail
