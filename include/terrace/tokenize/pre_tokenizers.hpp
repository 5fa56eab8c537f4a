// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/error.hpp>
#include <terrace/tokenize/utf8.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#ifndef PCRE2_CODE_UNIT_WIDTH
#define PCRE2_CODE_UNIT_WIDTH 8
#endif
#include <pcre2.h>

namespace terrace::tokenize {

/// A way to cut text into the pieces that are merged on their own.
struct pre_tokenizer_family {
  std::string_view name;  ///< GGUF `tokenizer.ggml.pre`
  std::array<std::string_view, 2>
      regexes;  ///< as published (Oniguruma), applied one after the other; "" is none
  bool whole_piece_first =
      false;                    ///< GGUF has no key for "ignore_merges": it comes with the family
  bool adds_bos = false;        ///< unless the file says otherwise
  bool merges_by_rank = false;  ///< token ids are ranks, a merge list is a lossy reconstruction
};

namespace detail {
inline constexpr std::string_view gpt2_regex =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
inline constexpr std::string_view llama3_regex =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
inline constexpr std::string_view gpt4o_regex =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"(\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
inline constexpr std::string_view kimi_regex =
    R"([\p{Han}]+|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"(\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
}  // namespace detail

/// Every family terrace knows.
inline constexpr std::array<pre_tokenizer_family, 8> pre_tokenizer_families{{
    {.name = "llama-bpe",
     .regexes = {detail::llama3_regex, ""},
     .whole_piece_first = true,
     .adds_bos = true},
    {.name = "llama3",
     .regexes = {detail::llama3_regex, ""},
     .whole_piece_first = true,
     .adds_bos = true},
    {.name = "llama-v3",
     .regexes = {detail::llama3_regex, ""},
     .whole_piece_first = true,
     .adds_bos = true},
    {.name = "smollm", .regexes = {R"(\p{N})", detail::gpt2_regex}},
    {.name = "gpt-2", .regexes = {detail::gpt2_regex, ""}},
    {.name = "gpt-4o", .regexes = {detail::gpt4o_regex, ""}},
    {.name = "minimax-m2", .regexes = {detail::gpt4o_regex, ""}},
    {.name = "kimi-k2",
     .regexes = {detail::kimi_regex, ""},
     .whole_piece_first = true,
     .merges_by_rank = true},
}};

/// The family that GGUF calls `name`.
[[nodiscard]] constexpr pre_tokenizer_family const* find_family(std::string_view name) noexcept {
  for (auto const& family : pre_tokenizer_families) {
    if (family.name == name) { return &family; }
  }
  return nullptr;
}
/// The first family that cuts by exactly these published regexes.
[[nodiscard]] constexpr pre_tokenizer_family const* find_family(
    std::array<std::string_view, 2> const& regexes) noexcept {
  for (auto const& family : pre_tokenizer_families) {
    if (family.regexes == regexes) { return &family; }
  }
  return nullptr;
}

namespace detail {

inline void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (auto at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
}

/// A published regex in PCRE2's words, where three things mean something else:
/// `\s` there takes in U+180E, `\p{Han}` means script extensions, and classes do not intersect.
/// General categories partition Unicode, so "letters of these kinds that are not Han" is written as
/// the complement of all other kinds.
[[nodiscard]] inline std::string to_pcre2(std::string_view published) {
#if PCRE2_MAJOR > 10 || PCRE2_MINOR >= 40
  std::string const han = R"(\p{sc:Han})";
#else
  std::string const han = R"(\p{Han})";
#endif
  std::string text{published};
  replace_all(text,
              R"([\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]])",
              R"([^\p{Ll}\p{N}\p{P}\p{S}\p{Z}\p{C}\p{Han}])");
  replace_all(text,
              R"([\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]])",
              R"([^\p{Lu}\p{Lt}\p{N}\p{P}\p{S}\p{Z}\p{C}\p{Han}])");
  replace_all(text, R"([^\s)", R"([^\t-\r\x{85}\p{Z})");
  replace_all(text, R"(\s)", R"([\t-\r\x{85}\p{Z}])");
  replace_all(text, R"(\S)", R"([^\t-\r\x{85}\p{Z}])");
  replace_all(text, R"(\p{Han})", han);
  return text;
}

/// One compiled expression. Matching is const and safe from several threads.
class unicode_regex {
 public:
  explicit unicode_regex(std::string const& pattern) {
    int code = 0;
    PCRE2_SIZE where = 0;
    code_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()),
                              pattern.size(),
                              PCRE2_UTF | PCRE2_UCP | PCRE2_NO_UTF_CHECK,
                              &code,
                              &where,
                              nullptr));
    if (code_ == nullptr) {
      throw not_supported{"this PCRE2 refuses the pre-tokenizer expression at offset " +
                          std::to_string(where) + ": " + message(code) +
                          "; version 10.32 or newer is needed"};
    }
    static_cast<void>(
        pcre2_jit_compile(code_.get(), PCRE2_JIT_COMPLETE));  // without it the interpreter runs
    // A run of one kind of character may be megabytes long; the default limits would give up on it.
    limits_.reset(pcre2_match_context_create(nullptr));
    if (limits_ == nullptr) { throw error{"PCRE2 is out of memory"}; }
    pcre2_set_match_limit(limits_.get(), UINT32_MAX);
    pcre2_set_depth_limit(limits_.get(), UINT32_MAX);
    pcre2_set_heap_limit(limits_.get(), UINT32_MAX);
  }

  /// Appends the matches in `text`, which must be well-formed UTF-8, and the gaps between them:
  /// nothing is lost.
  void cut(std::string_view text, std::vector<std::string_view>& pieces) const {
    std::unique_ptr<pcre2_match_data, free_match> const match{pcre2_match_data_create(1, nullptr)};
    if (match == nullptr) { throw error{"PCRE2 is out of memory"}; }
    PCRE2_SIZE const* const range = pcre2_get_ovector_pointer(match.get());
    for (std::size_t at = 0; at < text.size(); at = range[1]) {
      if (!find(text, at, match.get())) {
        pieces.push_back(text.substr(at));
        return;
      }
      TERRACE_ASSERT(range[1] > at && range[0] >= at);
      if (range[0] > at) { pieces.push_back(text.substr(at, range[0] - at)); }
      pieces.push_back(text.substr(range[0], range[1] - range[0]));
    }
  }

 private:
  struct free_code {
    void operator()(pcre2_code* code) const noexcept { pcre2_code_free(code); }
  };
  struct free_context {
    void operator()(pcre2_match_context* context) const noexcept {
      pcre2_match_context_free(context);
    }
  };
  struct free_match {
    void operator()(pcre2_match_data* match) const noexcept { pcre2_match_data_free(match); }
  };

  [[nodiscard]] static std::string message(int code) {
    PCRE2_UCHAR text[128] = {};
    pcre2_get_error_message(code, text, sizeof text);
    return reinterpret_cast<char const*>(text);
  }

  [[nodiscard]] bool find(std::string_view text, std::size_t from, pcre2_match_data* match) const {
    auto const run = [&](std::uint32_t flags) {
      return pcre2_match(code_.get(),
                         reinterpret_cast<PCRE2_SPTR>(text.data()),
                         text.size(),
                         from,
                         PCRE2_NO_UTF_CHECK | flags,
                         match,
                         limits_.get());
    };
    int result = run(0);
    if (result == PCRE2_ERROR_JIT_STACKLIMIT) { result = run(PCRE2_NO_JIT); }
    if (result == PCRE2_ERROR_NOMATCH) { return false; }
    if (result < 0) { throw error{"the pre-tokenizer gave up on this text: " + message(result)}; }
    return true;
  }

  std::unique_ptr<pcre2_code, free_code> code_;
  std::unique_ptr<pcre2_match_context, free_context> limits_;
};

}  // namespace detail

/// Cuts text into pieces. Const calls are safe from several threads.
class pre_tokenizer {
 public:
  explicit pre_tokenizer(pre_tokenizer_family const& family) {
    for (auto const regex : family.regexes) {
      if (!regex.empty()) { stages_.emplace_back(detail::to_pcre2(regex)); }
    }
  }

  /// The pieces of `text` in order; together they are `text`. Bytes that are not UTF-8 form pieces
  /// of their own.
  /// Cost: linear in the text for every family.
  [[nodiscard]] std::vector<std::string_view> split(std::string_view text) const {
    std::vector<std::string_view> pieces;
    while (!text.empty()) {
      std::string_view const good = text.substr(0, valid_utf8_prefix(text));
      if (!good.empty()) { split_valid(good, pieces); }
      text.remove_prefix(good.size());
      std::size_t bad = 0;
      for (utf8_unit unit; bad < text.size(); bad += unit.bytes) {
        unit = read_utf8(text.substr(bad));
        if (unit.state == utf8_state::whole) { break; }
      }
      if (bad > 0) { pieces.push_back(text.substr(0, bad)); }
      text.remove_prefix(bad);
    }
    return pieces;
  }

 private:
  void split_valid(std::string_view text, std::vector<std::string_view>& pieces) const {
    std::vector<std::string_view> coarse{text};
    for (auto const& stage : stages_) {
      std::vector<std::string_view> finer;
      for (auto const part : coarse) { stage.cut(part, finer); }
      coarse = std::move(finer);
    }
    pieces.insert(pieces.end(), coarse.begin(), coarse.end());
  }

  std::vector<detail::unicode_regex> stages_;
};

}  // namespace terrace::tokenize
