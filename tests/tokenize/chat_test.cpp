// SPDX-License-Identifier: Apache-2.0
#include "tokenize/toy_tokenizer.hpp"

#include <terrace/core/error.hpp>
#include <terrace/format/byte_source.hpp>
#include <terrace/format/gguf.hpp>
#include <terrace/tokenize/chat.hpp>
#include <terrace/tokenize/visible_text.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

using namespace terrace::tokenize;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;

namespace {

tokenizer with_template(std::string const& source) {
  auto keys = toy::gguf_keys("gpt-2", {}, {}, {"<s>", "</s>"});
  keys.set("tokenizer.ggml.bos_token_id", std::uint64_t{256});
  keys.set("tokenizer.ggml.eos_token_id", std::uint64_t{257});
  if (!source.empty()) { keys.set("tokenizer.chat_template", source); }
  return tokenizer::from_metadata(keys);
}

nlohmann::ordered_json const hello =
    parse_messages(R"([{"role": "user", "content": "Hello"}])", "test");

}  // namespace

TEST_CASE("golden chats render and tokenise as recorded, from GGUF and from the folder",
          "[tokenize][golden]") {
  std::string const root = TERRACE_GOLDEN_DIR;
  if (root.empty()) { SKIP("TERRACE_GOLDEN_DIR is empty"); }
  for (std::string const model : {"llama-tiny", "minimax-m2-tiny", "kimi-k2-tiny"}) {
    std::filesystem::path const folder = std::filesystem::path{root} / model;
    std::ifstream file{folder / "golden.json"};
    auto const golden = nlohmann::ordered_json::parse(file);
    terrace::format::file_source const gguf{folder / (model + "-bf16.gguf")};
    for (auto const& tokens : {tokenizer::from_metadata(terrace::format::read_gguf(gguf).meta),
                               tokenizer::from_folder(folder)}) {
      INFO(tokens.source());
      for (auto const& chat : golden.at("chats")) {
        auto const prompt = render_chat(tokens, chat.at("messages"));
        CHECK(prompt == chat.at("rendered").get<std::string>());
        CHECK(tokens.encode(prompt, true) == chat.at("ids").get<std::vector<token_id>>());
      }
    }
  }
}

TEST_CASE("golden chats of Kimi K3 become the recorded pieces and ids", "[tokenize][golden]") {
  std::string const root = TERRACE_GOLDEN_DIR;
  if (root.empty()) { SKIP("TERRACE_GOLDEN_DIR is empty"); }
  std::filesystem::path const folder = std::filesystem::path{root} / "kimi-k3-tiny";
  std::ifstream file{folder / "golden.json"};
  auto const golden = nlohmann::ordered_json::parse(file);
  terrace::format::file_source const gguf{folder / "kimi-k3-tiny.gguf"};
  for (auto const& tokens : {tokenizer::from_metadata(terrace::format::read_gguf(gguf).meta),
                             tokenizer::from_folder(folder, "kimi-k3")}) {
    INFO(tokens.source());
    for (auto const& chat : golden.at("chats")) {
      INFO(chat.at("name"));
      auto const prompt = chat_prompt(tokens,
                                      chat.at("messages"),
                                      {.add_generation_prompt = chat.at("prompt").get<bool>(),
                                       .thinking = chat.at("thinking").get<bool>(),
                                       .now = {}});
      std::vector<segment> expected;
      for (auto const& one : chat.at("segments")) {
        expected.push_back({one.at(0).get<std::string>(), one.at(1).get<int>() == 1});
      }
      CHECK(prompt == expected);
      CHECK(tokens.encode(prompt) == chat.at("ids").get<std::vector<token_id>>());
      CHECK(tokens.encode(join(prompt), true) ==
            chat.at("joined_ids").get<std::vector<token_id>>());
    }
  }
}

TEST_CASE("a chat template sees the messages, the special tokens and the generation prompt",
          "[tokenize]") {
  auto const tokens = with_template(
      "{{ bos_token }}{% for m in messages %}{{ m.role }}:{{ m.content }}{{ eos_token }}{% endfor "
      "%}"
      "{% if add_generation_prompt %}ai:{% endif %}{% if tools is none %}!{% endif %}");
  CHECK(render_chat(tokens, hello) == "<s>user:Hello</s>ai:!");
  CHECK(render_chat(tokens, hello, {.add_generation_prompt = false, .thinking = {}, .now = {}}) ==
        "<s>user:Hello</s>!");
}

TEST_CASE("thinking reaches a template that asks for it and is refused by one that does not",
          "[tokenize]") {
  chat_options const off{.add_generation_prompt = true, .thinking = false, .now = {}};
  auto const switchable =
      with_template("{% if thinking is defined and not thinking %}off{% else %}on{% endif %}");
  CHECK(chat_template{switchable}.can_switch_thinking());
  CHECK(render_chat(switchable, hello, off) == "off");
  CHECK(render_chat(switchable, hello) == "on");
  auto const fixed = with_template("{{ messages[0].content }}");
  CHECK_FALSE(chat_template{fixed}.can_switch_thinking());
  CHECK_THROWS_MATCHES(render_chat(fixed, hello, off),
                       terrace::not_supported,
                       MessageMatches(ContainsSubstring("no switch for thinking")));
}

TEST_CASE("errors of a chat name the file", "[tokenize]") {
  CHECK_THROWS_MATCHES(
      render_chat(with_template(""), hello),
      terrace::not_supported,
      MessageMatches(ContainsSubstring("toy.gguf: the file has no chat template")));
  CHECK_THROWS_MATCHES(
      render_chat(with_template("{{ raise_exception('roles must alternate') }}"), hello),
      terrace::contract_error,
      MessageMatches(ContainsSubstring("toy.gguf") && ContainsSubstring("roles must alternate")));
  CHECK_THROWS_MATCHES(render_chat(with_template("{{ 1 + }}"), hello),
                       terrace::format_error,
                       MessageMatches(ContainsSubstring("toy.gguf")));
}

TEST_CASE("messages files that are no list of messages are refused", "[tokenize]") {
  auto const refused = [](std::string const& text, std::string const& words) {
    INFO(text.substr(0, 60));
    CHECK_THROWS_MATCHES(
        parse_messages(text, "chat.json"),
        terrace::format_error,
        MessageMatches(ContainsSubstring("chat.json") && ContainsSubstring(words)));
  };
  refused("", "not valid JSON");
  refused("{}", "expected a JSON array");
  refused("[]", "expected a JSON array");
  refused(R"([{"content": "x"}])", "message 0 is no object with a `role`");
  refused(R"([{"role": "user"}, 5])", "message 1 is no object");
  refused(R"([{"role": "user", "content": 5}])", "`content` is neither");
  refused(std::string(100'000, '['), "nested 100000 deep");
  refused("[{\"role\": \"user\", \"content\": \"\xFF\"}]", "not valid JSON");
  CHECK(parse_messages(R"([{"role": "assistant", "content": null, "tool_calls": []}])", "chat.json")
            .size() == 1);
}

namespace {

std::string xtml(char const* messages, chat_options const& options = {}) {
  return join(xtml_prompt(parse_messages(messages, "test"), options));
}
chat_options const no_prompt{.add_generation_prompt = false, .thinking = false, .now = {}};

}  // namespace

TEST_CASE("tags escape the values of attributes and leave texts as they are", "[tokenize]") {
  CHECK(xtml(R"([{"role": "user", "name": "a\"&b", "content": "x \"&"}])", no_prompt) ==
        R"(<|open|>message role="user" name="a&quot;&amp;b"<|sep|>x "&<|close|>message<|sep|>)"
        "<|end_of_msg|>");
}

TEST_CASE("what a user writes is text, whatever it spells", "[tokenize]") {
  auto const pieces = xtml_prompt(
      parse_messages(R"([{"role": "user", "content": "<|end_of_msg|>"}])", "test"), no_prompt);
  CHECK(std::count(pieces.begin(), pieces.end(), segment{"<|end_of_msg|>", false}) == 1);
  CHECK(std::count(pieces.begin(), pieces.end(), segment{"<|end_of_msg|>", true}) == 1);
}

TEST_CASE("tool calls may be nested and carry their arguments as text; results find them by id",
          "[tokenize]") {
  auto const text = xtml(R"([
    {"role": "assistant", "content": null, "tool_calls": [
      {"id": "a", "function": {"name": "f", "arguments": "{\"x\": {\"y\": [1, 2]}}"}},
      {"id": "b", "function": {"name": "g", "arguments": {}}}]},
    {"role": "tool", "tool_call_id": "b", "content": [{"type": "text", "text": "done"}]}])",
                         no_prompt);
  CHECK_THAT(text,
             ContainsSubstring(R"(call tool="f" index="1"<|sep|><|open|>argument key="x" )"
                               R"(type="object"<|sep|>{"y": [1, 2]}<|close|>)"));
  CHECK_THAT(text, ContainsSubstring(R"(role="tool" tool="g" index="2"<|sep|>done)"));
}

TEST_CASE("messages without a form in tags are refused", "[tokenize]") {
  auto const refused = [](char const* messages, char const* part) {
    CHECK_THROWS_MATCHES(xtml(messages), terrace::error, MessageMatches(ContainsSubstring(part)));
  };
  refused(R"([{"role": "critic", "content": "x"}])", "`critic`");
  refused(R"([{"role": "tool", "content": "x"}])", "with 0 tool calls");
  refused(R"([{"role": "user", "content": [{"type": "image"}]}])", "only text");
  refused(R"([{"role": "assistant", "tool_calls": [{"name": "f", "arguments": "no"}]}])",
          "no JSON object");
  refused(R"([{"role": "assistant", "tool_calls": [7]}])", "no `name`");
}

TEST_CASE("readers see neither control tokens nor the names of tags", "[tokenize]") {
  auto const read = [](std::vector<std::string> const& control) {
    auto const tokens = tokenizer::from_metadata(toy::gguf_keys("gpt-2", {}, {}, control));
    visible_text visible{tokens};
    std::string text;
    for (token_id const id : tokens.encode("<|open|>think<|sep|>Hm<|close|>think<|sep|>", true)) {
      text += visible.push(id);
    }
    return text;
  };
  CHECK(read({"<|open|>", "<|close|>", "<|sep|>", "<|end_of_msg|>"}) == "Hm");
  CHECK(read({"<|open|>", "<|close|>", "<|sep|>"}) == "thinkHmthink");
}
