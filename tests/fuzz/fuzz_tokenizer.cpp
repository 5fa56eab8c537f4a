// SPDX-License-Identifier: Apache-2.0
// The first byte chooses a reader, the rest is its input: a tokenizer.json (and a text for it), a
// tiktoken.model, a chat template, a messages file, or a text for each family of pre-tokenizers.
// Answers or a terrace::error, and no text may lose a byte.
#include "tokenize/toy_tokenizer.hpp"

#include <terrace/core/error.hpp>
#include <terrace/tokenize/chat.hpp>
#include <terrace/tokenize/tokenizer.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

namespace {

using namespace terrace::tokenize;

void require(bool truth) {
  if (!truth) { std::abort(); }
}

/// What follows a zero byte is a text for the tokenizer before it.
void read_tokenizer_json(std::string_view input) {
  auto const end = input.find('\0');
  std::string_view const text = end == std::string_view::npos ? "a text" : input.substr(end + 1);
  tokenizer const tokens{detail::parse_tokenizer_json(input.substr(0, end), "tokenizer.json")};
  for (token_id const id : tokens.encode(text, true)) {
    require(id >= 0 && id < tokens.vocab_size());
  }
}

void read_tiktoken(std::string_view input) {
  tokenizer const tokens{detail::parse_tiktoken_model(input, nullptr, "tiktoken.model")};
  require(tokens.decode(tokens.encode(input, false)) == input);
}

void render(std::string_view input) {
  auto const messages = parse_messages(
      R"([{"role":"user","content":"Hi\n"},{"role":"assistant","content":null,"tool_calls":[{"a":[1,2.5]}]}])",
      "test");
  jinja::program const program{input};
  static_cast<void>(
      program.render({{"messages", jinja::from_json(messages)}, {"add_generation_prompt", true}},
                     0,
                     {.steps = 200'000, .depth = 600}));
}

[[nodiscard]] std::vector<tokenizer> one_of_each_family() {
  std::vector<std::string> const pieces{"ab", "\u0120t", "\u00E4\u00BD", "ll"};
  std::vector<std::string> const merges{"a b", "\u0120 t", "\u00E4 \u00BD", "l l"};
  std::vector<tokenizer> all;
  for (auto const& family : pre_tokenizer_families) {
    all.push_back(tokenizer::from_metadata(
        toy::gguf_keys(std::string{family.name}, pieces, merges, {"<s>"}, {"<u>"})));
  }
  return all;
}

void encode_everywhere(std::string_view input) {
  static auto const families = one_of_each_family();
  for (auto const& tokens : families) {
    auto const ids = tokens.encode(input, true);
    require(tokens.decode(ids) == input);
    utf8_stream stream;
    std::string text;
    for (token_id const id : ids) { text += stream.push(tokens.piece(id)); }
    require(text + stream.finish() == to_valid_utf8(input));
  }
  static_cast<void>(nfc(to_valid_utf8(input)));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
  if (size == 0) { return 0; }
  std::string_view const input{reinterpret_cast<char const*>(data) + 1, size - 1};
  try {
    switch (data[0]) {
      case 'j':
        read_tokenizer_json(input);
        break;
      case 't':
        read_tiktoken(input);
        break;
      case 'c':
        render(input);
        break;
      case 'm':
        static_cast<void>(jinja::from_json(parse_messages(input, "messages.json")));
        break;
      default:
        encode_everywhere(input);
        break;
    }
  } catch (terrace::error const&) {  // the only answer a damaged file may get
  }
  return 0;
}
