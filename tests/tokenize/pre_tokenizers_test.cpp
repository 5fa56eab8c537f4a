// SPDX-License-Identifier: Apache-2.0
#include <terrace/tokenize/pre_tokenizers.hpp>

#include <catch2/catch_test_macros.hpp>

#include <string>
#include <string_view>
#include <vector>

using namespace terrace::tokenize;
using pieces = std::vector<std::string_view>;

namespace {
pieces split(char const* family, std::string_view text) {
  REQUIRE(find_family(family) != nullptr);
  return pre_tokenizer{*find_family(family)}.split(text);
}
std::string joined(pieces const& parts) {
  std::string text;
  for (auto const part : parts) { text += part; }
  return text;
}
}  // namespace

TEST_CASE(
    "llama-bpe splits contractions in either case, numbers in threes and leaves one space to a "
    "word",
    "[tokenize]") {
  CHECK(split("llama-bpe", "I'm DON'T 12345  x\r\n\n y  ") ==
        pieces{"I", "'m", " DON", "'T", " ", "123", "45", " ", " x", "\r\n\n", " y", "  "});
}

TEST_CASE("smollm splits every digit on its own and only lower-case contractions", "[tokenize]") {
  CHECK(split("smollm", "it's IT'S a 12") ==
        pieces{"it", "'s", " IT", "'", "S", " a", " ", "1", "2"});
}

TEST_CASE("minimax-m2 splits camel case and lets slashes end punctuation", "[tokenize]") {
  CHECK(split("minimax-m2", "CamelCaseXML can't //\n/ x") ==
        pieces{"Camel", "Case", "XML", " can't", " //\n/", " x"});
}

TEST_CASE("kimi-k2 keeps runs of Han apart from other letters", "[tokenize]") {
  CHECK(split("kimi-k2", "x\u4E2Dy\u6F22\u5B57kanji \u65E5\u672C\u8A9E\u306E") ==
        pieces{"x", "\u4E2D", "y", "\u6F22\u5B57", "kanji", " ", "\u65E5\u672C\u8A9E", "\u306E"});
}

TEST_CASE("the prolonged sound mark is kana, not Han, for kimi-k2", "[tokenize]") {
  // U+30FC is used with several scripts; its Script property is Common, so it belongs to the word
  // before.
  CHECK(split("kimi-k2", "\u30AB\u30FC\u30C9") == pieces{"\u30AB\u30FC\u30C9"});
  CHECK(split("kimi-k2", "\u6F22\u30FC") == pieces{"\u6F22", "\u30FC"});
}

TEST_CASE("U+180E is no white space", "[tokenize]") {
  CHECK(split("llama-bpe", "a \u180Eb") == pieces{"a", " \u180E", "b"});
}

TEST_CASE("no family loses a byte of ill-formed text", "[tokenize]") {
  std::string const text = "ab\xFF\xFE caf\xC3 \xE4\xBD\xA0\xE4\xBD \xED\xA0\x80 z\xF0\x9F";
  for (auto const& family : pre_tokenizer_families) {
    INFO(family.name);
    CHECK(joined(pre_tokenizer{family}.split(text)) == text);
  }
}

TEST_CASE("long runs of one kind of character split without loss", "[tokenize]") {
  for (auto const& family : pre_tokenizer_families) {
    for (std::string const unit :
         {" ", "a", "A", "\u4E2D", "1", "!", "\n", "\u0301", " \n", "\u00AA", "\u200D"}) {
      INFO(family.name << " and a run of `" << unit << "`");
      std::string text;
      while (text.size() < 1'000'000) { text += unit; }
      text += 'x';
      CHECK(joined(pre_tokenizer{family}.split(text)) == text);
    }
  }
}
