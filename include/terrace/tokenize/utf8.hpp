// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace terrace::tokenize {

enum class utf8_state : std::uint8_t {
  whole,   ///< a well-formed sequence of `bytes` bytes
  broken,  ///< `bytes` bytes that no continuation can repair (a maximal subpart in Unicode's words)
  cut,     ///< the text ends inside a sequence that more bytes may still complete
};

struct utf8_unit {
  utf8_state state = utf8_state::broken;
  std::uint8_t bytes = 1;
  char32_t code = 0;  ///< meaningful when whole
};

/// Reads the sequence at the front of `text`, which must not be empty. Surrogates, overlong forms
/// and values above U+10FFFF are broken.
/// Source: The Unicode Standard, table 3-7 (well-formed UTF-8 byte sequences).
[[nodiscard]] constexpr utf8_unit read_utf8(std::string_view text) noexcept {
  auto const lead = static_cast<unsigned char>(text[0]);
  if (lead < 0x80) { return {utf8_state::whole, 1, lead}; }
  if (lead < 0xC2 || lead > 0xF4) { return {utf8_state::broken, 1, 0}; }
  std::uint8_t const length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  unsigned low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  unsigned high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  char32_t code = lead & (0xFFU >> (length + 1U));
  for (std::uint8_t i = 1; i < length; ++i) {
    if (i == text.size()) { return {utf8_state::cut, i, 0}; }
    auto const next = static_cast<unsigned char>(text[i]);
    if (next < low || next > high) { return {utf8_state::broken, i, 0}; }
    code = (code << 6U) | (next & 0x3FU);
    low = 0x80;
    high = 0xBF;
  }
  return {utf8_state::whole, length, code};
}

/// Bytes of the longest well-formed prefix.
[[nodiscard]] constexpr std::size_t valid_utf8_prefix(std::string_view text) noexcept {
  std::size_t at = 0;
  while (at < text.size()) {
    auto const unit = read_utf8(text.substr(at));
    if (unit.state != utf8_state::whole) { break; }
    at += unit.bytes;
  }
  return at;
}

/// `code` must be a Unicode scalar value.
inline void append_utf8(std::string& text, char32_t code) {
  if (code < 0x80) {
    text += static_cast<char>(code);
    return;
  }
  int const tail = code < 0x800 ? 1 : code < 0x1'0000 ? 2 : 3;
  constexpr unsigned leads[] = {0x00, 0xC0, 0xE0, 0xF0};
  text += static_cast<char>(leads[tail] | (code >> (6U * static_cast<unsigned>(tail))));
  for (int i = tail - 1; i >= 0; --i) {
    text += static_cast<char>(0x80U | ((code >> (6U * static_cast<unsigned>(i))) & 0x3FU));
  }
}

/// Turns the bytes of successive tokens into text that is well-formed at every step: a sequence
/// split over tokens is held back until it is whole, and bytes that can never become a character
/// come out as U+FFFD, one per maximal subpart.
class utf8_stream {
 public:
  /// The text that `bytes` completes; may be empty.
  [[nodiscard]] std::string push(std::string_view bytes) {
    held_ += bytes;
    std::string text;
    std::size_t at = 0;
    while (at < held_.size()) {
      auto const unit = read_utf8(std::string_view{held_}.substr(at));
      if (unit.state == utf8_state::cut) { break; }
      if (unit.state == utf8_state::whole) {
        text.append(held_, at, unit.bytes);
      } else {
        text += replacement;
      }
      at += unit.bytes;
    }
    held_.erase(0, at);
    return text;
  }

  /// What is left when no more bytes come: nothing, or one U+FFFD.
  [[nodiscard]] std::string finish() {
    bool const incomplete = !held_.empty();
    held_.clear();
    return incomplete ? std::string{replacement} : std::string{};
  }

 private:
  static constexpr std::string_view replacement = "\xEF\xBF\xBD";
  std::string held_;  // at most three bytes between calls
};

/// `bytes` with every ill-formed part replaced by U+FFFD.
[[nodiscard]] inline std::string to_valid_utf8(std::string_view bytes) {
  utf8_stream stream;
  std::string text = stream.push(bytes);
  return text + stream.finish();
}

}  // namespace terrace::tokenize
