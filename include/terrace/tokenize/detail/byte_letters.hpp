// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/tokenize/utf8.hpp>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace terrace::tokenize::detail {

/// GPT-2 writes every byte as a printable character in vocabularies and merges: 188 bytes stand for
/// themselves (as Latin-1), the other 68 take U+0100 onwards in order. Returns the byte of each
/// such character, -1 for characters that stand for none.
[[nodiscard]] constexpr std::array<std::int16_t, 0x144> make_letter_table() noexcept {
  std::array<std::int16_t, 0x144> bytes{};
  bytes.fill(-1);
  std::size_t next = 0x100;
  for (std::int16_t byte = 0; byte < 256; ++byte) {
    bool const printable =
        (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
    bytes[printable ? static_cast<std::size_t>(byte) : next++] = byte;
  }
  return bytes;
}

/// The bytes that a vocabulary entry spells, or nothing if it is not in that spelling.
[[nodiscard]] inline std::optional<std::string> bytes_of_letters(std::string_view letters) {
  static constexpr auto table = make_letter_table();
  std::string bytes;
  bytes.reserve(letters.size());
  while (!letters.empty()) {
    auto const unit = read_utf8(letters);
    if (unit.state != utf8_state::whole || unit.code >= table.size() || table[unit.code] < 0) {
      return std::nullopt;
    }
    bytes += static_cast<char>(table[unit.code]);
    letters.remove_prefix(unit.bytes);
  }
  return bytes;
}

/// The same for an ordinary token, which stands for itself when it is not in that spelling.
[[nodiscard]] inline std::string ordinary_bytes(std::string_view letters) {
  auto bytes = bytes_of_letters(letters);
  return bytes ? *std::move(bytes) : std::string{letters};
}

}  // namespace terrace::tokenize::detail
