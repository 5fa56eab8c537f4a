// SPDX-License-Identifier: Apache-2.0
#include <terrace/format/byte_source.hpp>
#include <terrace/format/gguf.hpp>
#include <terrace/tokenize/tokenizer.hpp>

#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

using terrace::tokenize::segment;
using terrace::tokenize::token_id;
using terrace::tokenize::tokenizer;

namespace {

std::filesystem::path golden_folder(std::string const& model) {
  std::string const root = TERRACE_GOLDEN_DIR;
  if (root.empty()) { SKIP("TERRACE_GOLDEN_DIR is empty"); }
  return std::filesystem::path{root} / model;
}

nlohmann::json golden(std::filesystem::path const& folder) {
  std::ifstream file{folder / "golden.json"};
  return nlohmann::json::parse(file);
}

tokenizer from_gguf(std::filesystem::path const& folder) {
  for (auto const& entry : std::filesystem::directory_iterator{folder}) {
    if (entry.path().extension() == ".gguf") {
      return tokenizer::from_metadata(
          terrace::format::read_gguf(terrace::format::file_source{entry.path()}).meta);
    }
  }
  FAIL("no GGUF in " << folder);
  throw std::logic_error{"unreachable"};
}

void check_texts(tokenizer const& tokens, nlohmann::json const& expected) {
  REQUIRE(expected.at("tokenizer").size() > 10);
  for (auto const& entry : expected.at("tokenizer")) {
    auto const text = entry.at("text").get<std::string>();
    INFO(text);
    auto const ids = tokens.encode(text, true);
    CHECK(ids == entry.at("ids").get<std::vector<token_id>>());
    CHECK(tokens.decode(ids) == entry.at("decoded").get<std::string>());
    if (entry.contains("plain_ids")) {
      CHECK(tokens.encode(text, false) == entry.at("plain_ids").get<std::vector<token_id>>());
    }
  }
  for (auto const& prompt : expected.at("prompts")) {
    INFO(prompt.at("name"));
    auto const ids = tokens.encode(prompt.at("text").get<std::string>(), true);
    CHECK(ids == prompt.at("ids").get<std::vector<token_id>>());
    if (prompt.contains("nobos")) {
      auto const& run = prompt.at("nobos");
      CHECK(tokens.decode(run.at("greedy").get<std::vector<token_id>>()) ==
            run.at("greedy_text").get<std::string>());
    }
  }
  REQUIRE(tokens.bos().has_value());
  CHECK(*tokens.bos() == expected.at("bos_id").get<token_id>());
  for (auto const& chat : expected.at("chats")) {
    CHECK(tokens.end_ids() == chat.at("stop_ids").get<std::vector<token_id>>());
  }
}

void check_chat_ids(tokenizer const& tokens, nlohmann::json const& expected) {
  for (auto const& chat : expected.at("chats")) {
    CHECK(tokens.encode(chat.at("rendered").get<std::string>(), true) ==
          chat.at("ids").get<std::vector<token_id>>());
  }
}

void check_model(std::string const& model, std::string const& architecture, bool adds_bos) {
  auto const folder = golden_folder(model);
  auto const expected = golden(folder);
  for (auto const& tokens : {from_gguf(folder), tokenizer::from_folder(folder, architecture)}) {
    INFO(tokens.source());
    check_texts(tokens, expected);
    check_chat_ids(tokens, expected);
    CHECK(tokens.add_bos() == adds_bos);
    CHECK_FALSE(tokens.chat_template().empty());
  }
}

std::vector<segment> pieces_of(nlohmann::json const& entry) {
  std::vector<segment> pieces;
  for (auto const& one : entry.at("segments")) {
    pieces.push_back({one.at(0).get<std::string>(), one.at(1).get<int>() == 1});
  }
  return pieces;
}

}  // namespace

TEST_CASE("llama-tiny texts become the golden ids from GGUF and from tokenizer.json",
          "[tokenize][golden]") {
  check_model("llama-tiny", "llama", true);
}

TEST_CASE("minimax-m2-tiny texts become the golden ids from GGUF and from tokenizer.json",
          "[tokenize][golden]") {
  check_model("minimax-m2-tiny", "minimax-m2", false);
}

TEST_CASE("kimi-k2-tiny texts become the golden ids from GGUF and from tiktoken.model",
          "[tokenize][golden]") {
  check_model("kimi-k2-tiny", "deepseek2", false);
}

TEST_CASE("kimi-k2-tiny gives the same ids from tokenizer.json alone", "[tokenize][golden]") {
  auto const folder = golden_folder("kimi-k2-tiny");
  auto const copy = std::filesystem::temp_directory_path() / "terrace-kimi-json-only";
  std::filesystem::create_directories(copy);
  for (auto const* name :
       {"tokenizer.json", "tokenizer_config.json", "generation_config.json", "config.json"}) {
    std::filesystem::copy_file(
        folder / name, copy / name, std::filesystem::copy_options::overwrite_existing);
  }
  check_texts(tokenizer::from_folder(copy), golden(folder));
  std::filesystem::remove_all(copy);
}

TEST_CASE("kimi-k3-tiny texts become the golden ids from GGUF and from tiktoken.model",
          "[tokenize][golden]") {
  auto const folder = golden_folder("kimi-k3-tiny");
  auto const expected = golden(folder);
  for (auto const& tokens : {from_gguf(folder), tokenizer::from_folder(folder, "kimi-k3")}) {
    INFO(tokens.source());
    for (auto const& entry : expected.at("tokenizer")) {
      auto const text = entry.at("text").get<std::string>();
      INFO(text);
      CHECK(tokens.encode(text, true) == entry.at("ids").get<std::vector<token_id>>());
      CHECK(tokens.encode(text, false) == entry.at("plain_ids").get<std::vector<token_id>>());
    }
    for (auto const& prompt : expected.at("prompts")) {
      if (prompt.contains("segments")) {  // encoded in pieces
        CHECK(tokens.encode(pieces_of(prompt)) == prompt.at("ids").get<std::vector<token_id>>());
      } else {
        CHECK(tokens.encode(prompt.at("text").get<std::string>(), true) ==
              prompt.at("ids").get<std::vector<token_id>>());
      }
    }
    CHECK(tokens.end_ids() ==
          expected.at("chats").at(0).at("stop_ids").get<std::vector<token_id>>());
  }
}
