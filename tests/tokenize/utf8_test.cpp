// SPDX-License-Identifier: Apache-2.0
#include <terrace/tokenize/nfc.hpp>
#include <terrace/tokenize/utf8.hpp>

#include <catch2/catch_test_macros.hpp>

#include <string>
#include <string_view>

using namespace terrace::tokenize;
using namespace std::string_literals;

TEST_CASE("a stream holds back a character until its last byte", "[tokenize]") {
  utf8_stream stream;
  CHECK(stream.push("a\xF0\x9F") == "a");
  CHECK(stream.push("\x98") == "");
  CHECK(stream.push("\x80z") == "\xF0\x9F\x98\x80z");
  CHECK(stream.finish() == "");
}

TEST_CASE("a stream replaces a sequence that broke off and one that never ended", "[tokenize]") {
  utf8_stream stream;
  CHECK(stream.push("\xE4\xBD") == "");
  CHECK(stream.push("x") == "\xEF\xBF\xBDx");
  CHECK(stream.push("\xE4\xBD") == "");
  CHECK(stream.finish() == "\xEF\xBF\xBD");
  CHECK(stream.finish() == "");
}

TEST_CASE("ill-formed bytes become one U+FFFD per maximal subpart", "[tokenize]") {
  std::string const mark = "\xEF\xBF\xBD";
  CHECK(to_valid_utf8("\xC0\xAF") == mark + mark);                        // overlong
  CHECK(to_valid_utf8("\xED\xA0\x80") == mark + mark + mark);             // surrogate
  CHECK(to_valid_utf8("\xF4\x90\x80\x80") == mark + mark + mark + mark);  // above U+10FFFF
  CHECK(to_valid_utf8("\xF0\x80\x80\x41") == mark + mark + mark + "A");
  CHECK(to_valid_utf8("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41") == mark + mark + mark + mark + "A");
}

TEST_CASE("every scalar value reads back as written and no surrogate does", "[tokenize]") {
  for (char32_t code = 0; code <= 0x10'FFFF; ++code) {
    std::string text;
    append_utf8(text, code);
    auto const unit = read_utf8(text);
    bool const is_surrogate = code >= 0xD800 && code < 0xE000;
    if (is_surrogate
            ? unit.state == utf8_state::whole
            : unit.state != utf8_state::whole || unit.code != code || unit.bytes != text.size()) {
      FAIL("U+" << std::hex << static_cast<unsigned>(code));
    }
  }
}

TEST_CASE("nfc composes letters, orders marks and joins jamo", "[tokenize]") {
  CHECK(nfc("e\u0301") == "\u00E9");
  CHECK(nfc("\u212B \u2126") == "\u00C5 \u03A9");
  CHECK(nfc("a\u0301\u0323") == nfc("a\u0323\u0301"));
  CHECK(nfc("\u1100\u1161\u11A8") == "\uAC01");
  CHECK(nfc("\u0958") == "\u0915\u093C");  // excluded from composition
  CHECK(nfc("plain caf\u00E9") == "plain caf\u00E9");
}

TEST_CASE("nfc of a megabyte of alternating marks ends", "[tokenize]") {
  std::string text = "a";
  for (int i = 0; i < 250'000; ++i) { text += i % 2 == 0 ? "\u0301" : "\u0323"; }
  auto const composed = nfc(text);
  CHECK(composed.size() > 400'000);
  CHECK(nfc(composed) == composed);
}
