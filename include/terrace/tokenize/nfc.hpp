// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/error.hpp>
#include <terrace/tokenize/utf8.hpp>

#include <utf8proc.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace terrace::tokenize {
namespace detail {

/// Canonical decomposition of `text`, marks in canonical order.
/// utf8proc orders marks by repeated swaps, quadratic on a long run of them, so the runs are sorted
/// here.
[[nodiscard]] inline std::vector<utf8proc_int32_t> decompose(std::string_view text) {
  std::vector<utf8proc_int32_t> codes;
  codes.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    auto const unit = read_utf8(text.substr(at));
    utf8proc_int32_t parts[8];  // canonical decompositions have at most four
    int boundary = 0;
    auto const count = utf8proc_decompose_char(
        static_cast<utf8proc_int32_t>(unit.code), parts, 8, UTF8PROC_DECOMPOSE, &boundary);
    if (count < 0 || count > 8) { throw contract_error{"nfc: the text is not well-formed UTF-8"}; }
    codes.insert(codes.end(), parts, parts + count);
    at += unit.bytes;
  }
  auto const rank = [](utf8proc_int32_t code) {
    return utf8proc_get_property(code)->combining_class;
  };
  for (auto from = codes.begin(); from != codes.end();) {
    from = std::find_if(from, codes.end(), [&](auto code) { return rank(code) != 0; });
    auto const to = std::find_if(from, codes.end(), [&](auto code) { return rank(code) == 0; });
    std::stable_sort(from, to, [&](auto a, auto b) { return rank(a) < rank(b); });
    from = to;
  }
  return codes;
}

}  // namespace detail

/// Unicode normalisation form C of well-formed UTF-8.
/// Cost: one pass; text below U+0300 (all of Latin-1) is returned as it is.
[[nodiscard]] inline std::string nfc(std::string_view text) {
  // Every character below U+0300 is its own NFC and starts a new one; 0xCC is the first lead byte
  // above.
  bool const plain = std::all_of(
      text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0xCC; });
  if (plain) { return std::string{text}; }
  auto codes = detail::decompose(text);
  auto const kept =
      utf8proc_normalize_utf32(codes.data(),
                               static_cast<utf8proc_ssize_t>(codes.size()),
                               static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  if (kept < 0) { throw error{std::string{"nfc: "} + utf8proc_errmsg(kept)}; }
  std::string composed;
  composed.reserve(text.size());
  for (utf8proc_ssize_t i = 0; i < kept; ++i) {
    append_utf8(composed, static_cast<char32_t>(codes[static_cast<std::size_t>(i)]));
  }
  return composed;
}

}  // namespace terrace::tokenize
