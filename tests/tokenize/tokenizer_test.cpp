// SPDX-License-Identifier: Apache-2.0
#include "tokenize/toy_tokenizer.hpp"

#include <terrace/core/error.hpp>
#include <terrace/tokenize/tokenizer.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <chrono>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

using namespace terrace::tokenize;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;
using ids = std::vector<token_id>;

TEST_CASE("merges apply by rank and leftmost first", "[tokenize]") {
  auto const tokens = tokenizer::from_metadata(
      toy::gguf_keys("gpt-2", {"bc", "ab", "aa", "aaaa"}, {"b c", "a b", "a a", "aa aa"}));
  CHECK(tokens.encode("abc", true) == ids{'a', 256});  // b c ranks before a b
  CHECK(tokens.encode("aaa", true) == ids{258, 'a'});
  CHECK(tokens.encode("aaaaaaa", true) == ids{259, 258, 'a'});
}

TEST_CASE("llama-bpe takes a whole piece before it merges, gpt-2 does not", "[tokenize]") {
  std::vector<std::string> const pieces{"ab", "abc"};
  std::vector<std::string> const merges{"a b"};  // nothing leads to abc
  CHECK(tokenizer::from_metadata(toy::gguf_keys("llama-bpe", pieces, merges)).encode("abc", true) ==
        ids{257});
  CHECK(tokenizer::from_metadata(toy::gguf_keys("gpt-2", pieces, merges)).encode("abc", true) ==
        ids{256, 'c'});
}

TEST_CASE("rank merging joins the pair of the lowest id and ignores the merge list", "[tokenize]") {
  auto const tokens =
      tokenizer::from_metadata(toy::gguf_keys("kimi-k2", {"bc", "ab", "abc", "cd"}, {"no such"}));
  CHECK(tokens.encode("abc", true) == ids{258});
  CHECK(tokens.encode("abcd", true) == ids{258, 'd'});
  CHECK(tokens.encode("xabx", true) == ids{'x', 257, 'x'});
}

TEST_CASE("special spellings are found longest first, control ones only when asked for",
          "[tokenize]") {
  auto const tokens =
      tokenizer::from_metadata(toy::gguf_keys("gpt-2", {}, {}, {"<s>", "<s><t>"}, {"<u>"}));
  CHECK(tokens.encode("a<s><t><s>b", true) == ids{'a', 257, 256, 'b'});
  CHECK(tokens.encode("<s>", false) == ids{'<', 's', '>'});
  CHECK(tokens.encode("<u><s", false) == ids{258, '<', 's'});
  CHECK(tokens.is_control(256));
  CHECK_FALSE(tokens.is_control(258));
  CHECK(tokens.visible_piece(256).empty());
  CHECK(tokens.visible_piece(258) == "<u>");
  CHECK(tokens.decode(ids{257, 258}) == "<s><t><u>");
}

TEST_CASE("bytes that are not UTF-8 survive a round trip in every family", "[tokenize]") {
  std::mt19937 random{7};
  for (auto const& family : pre_tokenizer_families) {
    auto keys =
        toy::gguf_keys(std::string{family.name}, {"ab", "\u00E4\u00BD"}, {"a b", "\u00E4 \u00BD"});
    auto const tokens = tokenizer::from_metadata(keys);
    for (int round = 0; round < 200; ++round) {
      std::string text(random() % 40, '\0');
      for (auto& c : text) {
        c = static_cast<char>(random() % 4 == 0 ? random() : "ab 1\n\xE4\xBD\xA0"[random() % 8]);
      }
      CHECK(tokens.decode(tokens.encode(text, true)) == text);
    }
  }
}

TEST_CASE("nfc applies when the file asks for it and leaves added tokens and stray bytes alone",
          "[tokenize]") {
  auto keys = toy::gguf_keys("minimax-m2", {}, {}, {"<e\u0301>"});
  auto const plain = tokenizer::from_metadata(keys);
  CHECK(plain.decode(plain.encode("e\u0301", true)) == "e\u0301");
  keys.set("tokenizer.ggml.normalizer.nfc", true);
  auto const composed = tokenizer::from_metadata(keys);
  CHECK(composed.decode(composed.encode("e\u0301\xFF", true)) == "\u00E9\xFF");
  CHECK(composed.encode("<e\u0301>", true) == ids{256});
}

TEST_CASE("megabytes of one character are tokenised in seconds", "[tokenize]") {
  std::vector<std::string> pieces{"aa"};
  std::vector<std::string> merges{"a a"};
  while (pieces.size() < 10) {
    merges.push_back(pieces.back() + " " + pieces.back());
    pieces.push_back(pieces.back() + pieces.back());
  }
  for (char const* pre : {"gpt-2", "kimi-k2", "llama-bpe"}) {
    auto const tokens = tokenizer::from_metadata(toy::gguf_keys(pre, pieces, merges));
    for (std::string const unit : {"a", " ", "\u4E2D"}) {
      std::string text;
      while (text.size() < 2'000'000) { text += unit; }
      auto const begin = std::chrono::steady_clock::now();
      CHECK(tokens.decode(tokens.encode(text, true)) == text);
      CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds{120});
    }
  }
}

TEST_CASE("a byte without a token becomes the unknown token, or is refused when there is none",
          "[tokenize]") {
  auto keys = toy::gguf_keys("gpt-2", {}, {}, {"<unk>"});
  auto tokens = *keys.try_strings("tokenizer.ggml.tokens");
  tokens['q'] = "qqq";
  keys.set("tokenizer.ggml.tokens", tokens);
  CHECK_THROWS_MATCHES(tokenizer::from_metadata(keys).encode("aqa", true),
                       terrace::format_error,
                       MessageMatches(ContainsSubstring("no token for byte 113")));
  keys.set("tokenizer.ggml.unknown_token_id", std::uint64_t{256});
  CHECK(tokenizer::from_metadata(keys).encode("aqa", true) == ids{'a', 256, 'a'});
}

TEST_CASE("end ids join what the file names with the well-known spellings", "[tokenize]") {
  auto keys =
      toy::gguf_keys("llama-bpe", {}, {}, {"<end>", "<|eot_id|>", "<|other|>"}, {"<|im_end|>"});
  keys.set("tokenizer.ggml.eos_token_id", std::uint64_t{256});
  auto const tokens = tokenizer::from_metadata(keys);
  CHECK(tokens.end_ids() == ids{256, 257});  // <|im_end|> is text here
  CHECK(tokens.eos() == 256);
  CHECK(tokens.is_end(257));
  CHECK_FALSE(tokens.is_end(258));
}

TEST_CASE("llama files that say nothing about BOS get one", "[tokenize]") {
  auto keys = toy::gguf_keys("llama-bpe", {}, {}, {"<bos>"});
  keys.set("tokenizer.ggml.bos_token_id", std::uint64_t{256});
  CHECK_FALSE(tokenizer::from_metadata(keys).add_bos());  // the toy says false
  terrace::metadata silent{"silent.gguf"};
  for (auto const& [key, value] : keys) {
    if (key != "tokenizer.ggml.add_bos_token") { silent.set(key, value); }
  }
  CHECK(tokenizer::from_metadata(silent).add_bos());
}

TEST_CASE("broken GGUF tokenizers are refused with a sentence", "[tokenize]") {
  auto const refused = [](char const* key, terrace::metadata_value value, char const* words) {
    auto keys = toy::gguf_keys("gpt-2", {"ab"}, {"a b"});
    keys.set(key, std::move(value));
    INFO(key);
    CHECK_THROWS_MATCHES(
        tokenizer::from_metadata(keys), terrace::error, MessageMatches(ContainsSubstring(words)));
  };
  refused("tokenizer.ggml.model", std::string{"llama"}, "`llama` is not supported");
  refused("tokenizer.ggml.pre",
          std::string{"qwen9"},
          "`qwen9` is not supported; terrace knows llama-bpe");
  refused("tokenizer.ggml.tokens", std::vector<std::string>{}, "missing or empty");
  refused("tokenizer.ggml.token_type", std::vector<std::int64_t>{1, 1}, "2 entries for 257 tokens");
  refused("tokenizer.ggml.token_type", std::vector<std::int64_t>(257, 9), "has type 9");
  refused("tokenizer.ggml.merges", std::vector<std::string>{"ab"}, "merge 0 is `ab`");
  refused("tokenizer.ggml.merges", std::vector<std::string>{"a b", "a c"}, "merge 1 (`a c`)");
  refused("tokenizer.ggml.bos_token_id",
          std::uint64_t{257},
          "is 257, but the vocabulary has 257 tokens");
  refused("tokenizer.ggml.eos_token_id", std::int64_t{-1}, "eos_token_id");
  refused("tokenizer.ggml.add_bos_token", true, "names none");
}
