// SPDX-License-Identifier: Apache-2.0
#include "tokenize/toy_tokenizer.hpp"

#include <terrace/core/error.hpp>
#include <terrace/tokenize/tokenizer.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

using namespace terrace::tokenize;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;
using nlohmann::json;
using ids = std::vector<token_id>;

namespace {

/// A folder of files that goes away again.
class model_folder {
 public:
  model_folder() {
    static std::atomic<int> number{0};
    path_ = std::filesystem::temp_directory_path() /
            ("terrace-tokenizer-" + std::to_string(::getpid()) + "-" + std::to_string(number++));
    std::filesystem::create_directories(path_);
  }
  ~model_folder() { std::filesystem::remove_all(path_); }
  model_folder(model_folder const&) = delete;
  model_folder& operator=(model_folder const&) = delete;

  model_folder& with(std::string const& name, std::string const& text) {
    std::ofstream{path_ / name, std::ios::binary} << text;
    return *this;
  }
  model_folder& with(std::string const& name, json const& value) {
    return with(name, value.dump());
  }
  [[nodiscard]] std::filesystem::path const& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

/// Bytes 0-255, "ab" 256, "abc" 257; a control token 258 and one that is text, 259.
json toy_json() {
  json vocab;
  for (int byte = 0; byte < 256; ++byte) { vocab[toy::letter(byte)] = byte; }
  vocab["ab"] = 256;
  vocab["abc"] = 257;
  return {
      {"added_tokens",
       {{{"id", 258}, {"content", "<s>"}, {"special", true}},
        {{"id", 259}, {"content", "<u>"}, {"special", false}}}},
      {"normalizer", nullptr},
      {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}}},
      {"post_processor", nullptr},
      {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", {"a b", "ab c"}}}},
  };
}

/// The same pieces as a tiktoken file: the bytes, "ab", "abc".
std::string toy_ranks() {
  static constexpr std::string_view digits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (unsigned byte = 0; byte < 256; ++byte) {
    text += digits[byte >> 2U];
    text += digits[(byte & 3U) << 4U];
    text += "== " + std::to_string(byte) + "\n";
  }
  return text + "YWI= 256\nYWJj 257\n";
}

void check_refused(model_folder const& folder,
                   std::string const& words,
                   std::string const& architecture = "") {
  INFO(words);
  CHECK_THROWS_MATCHES(tokenizer::from_folder(folder.path(), architecture),
                       terrace::error,
                       MessageMatches(ContainsSubstring(words)));
}

}  // namespace

TEST_CASE("tokenizer.json is read with merges as strings or as pairs", "[tokenize]") {
  auto pairs = toy_json();
  pairs["model"]["merges"] = json::array({json::array({"a", "b"}), json::array({"ab", "c"})});
  for (auto const& file : {toy_json(), pairs}) {
    model_folder folder;
    auto const tokens = tokenizer::from_folder(folder.with("tokenizer.json", file).path());
    CHECK(tokens.encode("abc<s>ab<u>", true) == ids{257, 258, 256, 259});
    CHECK(tokens.encode("<s><u>", false) == ids{'<', 's', '>', 259});
    CHECK(tokens.vocab_size() == 260);
    CHECK_FALSE(tokens.add_bos());
    CHECK(tokens.chat_template().empty());
  }
}

TEST_CASE("ignore_merges takes whole pieces first", "[tokenize]") {
  auto file = toy_json();
  file["model"]["merges"] = json::array();
  file["model"]["ignore_merges"] = true;
  model_folder folder;
  auto const tokens = tokenizer::from_folder(folder.with("tokenizer.json", file).path());
  CHECK(tokens.encode("abc abcd", true) == ids{257, ' ', 'a', 'b', 'c', 'd'});
}

TEST_CASE("the post-processor or add_bos_token decides about BOS, the second wins", "[tokenize]") {
  auto file = toy_json();
  file["post_processor"] = {
      {"type", "Sequence"},
      {"processors",
       {{{"type", "ByteLevel"}},
        {{"type", "TemplateProcessing"},
         {"single", {{{"SpecialToken", {{"id", "<s>"}, {"type_id", 0}}}}}}}}}};
  model_folder folder;
  folder.with("tokenizer.json", file);
  CHECK(tokenizer::from_folder(folder.path()).add_bos());
  CHECK(tokenizer::from_folder(folder.path()).bos() == 258);
  folder.with("tokenizer_config.json",
              {{"bos_token", {{"content", "<s>"}}}, {"add_bos_token", false}});
  CHECK_FALSE(tokenizer::from_folder(folder.path()).add_bos());
}

TEST_CASE("end tokens come from the generation and model configuration, else from the tokenizer's",
          "[tokenize]") {
  model_folder folder;
  folder.with("tokenizer.json", toy_json()).with("tokenizer_config.json", {{"eos_token", "<s>"}});
  CHECK(tokenizer::from_folder(folder.path()).end_ids() == ids{258});
  folder.with("generation_config.json", {{"eos_token_id", {256, 257}}})
      .with("config.json", {{"eos_token_id", 5}});
  auto const tokens = tokenizer::from_folder(folder.path());
  CHECK(tokens.end_ids() == ids{5, 256, 257});
  CHECK(tokens.eos() == 258);
}

TEST_CASE(
    "chat_template.jinja goes before the configuration, the default of a list before other names",
    "[tokenize]") {
  model_folder folder;
  folder.with("tokenizer.json", toy_json());
  folder.with("tokenizer_config.json", {{"chat_template", "plain"}});
  CHECK(tokenizer::from_folder(folder.path()).chat_template() == "plain");
  folder.with(
      "tokenizer_config.json",
      {{"chat_template",
        {{{"name", "tools"}, {"template", "t"}}, {{"name", "default"}, {"template", "d"}}}}});
  CHECK(tokenizer::from_folder(folder.path()).chat_template() == "d");
  folder.with("chat_template.jinja", std::string{"own file"});
  CHECK(tokenizer::from_folder(folder.path()).chat_template() == "own file");
}

TEST_CASE("a tiktoken file gives ranks as ids and 256 special slots after them", "[tokenize]") {
  model_folder folder;
  folder.with("tiktoken.model", toy_ranks());
  folder.with("tokenizer_config.json",
              {{"bos_token", "[BOS]"},
               {"added_tokens_decoder", {{"258", {{"content", "[BOS]"}, {"special", true}}}}}});
  auto const tokens = tokenizer::from_folder(folder.path(), "deepseek2");
  CHECK(tokens.vocab_size() == 258 + 256);
  CHECK(tokens.encode("abc[BOS]<|reserved_token_259|>", true) == ids{257, 258, 259});
  CHECK(tokens.bos() == 258);
  CHECK_FALSE(tokens.add_bos());
  CHECK(tokens.is_control(300));
}

TEST_CASE("a tiktoken file and a tokenizer.json that disagree are refused", "[tokenize]") {
  auto file = toy_json();
  file["pre_tokenizer"] = {
      {"type", "Sequence"},
      {"pretokenizers",
       {{{"type", "Split"}, {"pattern", {{"Regex", detail::kimi_regex}}}, {"behavior", "Isolated"}},
        {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}}}};
  file["added_tokens"] = json::array();
  for (int id = 258; id < 258 + 256; ++id) {
    file["added_tokens"].push_back({{"id", id},
                                    {"content", "<|reserved_token_" + std::to_string(id) + "|>"},
                                    {"special", true}});
  }
  model_folder folder;
  folder.with("tiktoken.model", toy_ranks()).with("tokenizer.json", file);
  CHECK(tokenizer::from_folder(folder.path()).vocab_size() == 514);
  file["model"]["vocab"].erase("abc");
  file["model"]["vocab"]["abd"] = 257;
  folder.with("tokenizer.json", file);
  check_refused(folder, "disagree about token 257 (`abc` and `abd`)");
}

TEST_CASE("broken tiktoken files are refused with the line or the rank", "[tokenize]") {
  auto const refused = [](std::string const& text, std::string const& words) {
    model_folder folder;
    check_refused(folder.with("tiktoken.model", text), words);
  };
  refused("", "no pieces");
  refused("YQ== 0\nYg=\n", "line 2");
  refused("YQ==\n", "line 1");
  refused("YQ== x\n", "line 1");
  refused("YQ== 0 1\n", "line 1");
  refused("YQ== -1\n", "line 1");
  refused("YQ== 99999999999\n", "line 1");
  refused("Y!== 0\n", "line 1");
  refused("YQ== 0\nYg== 0\n", "used twice");
  refused("YQ== 1\n", "rank 0 is missing");
  model_folder other;
  check_refused(
      other.with("tiktoken.model", toy_ranks()), "how a `llama` model splits text", "llama");
  model_folder strange;
  strange.with("tiktoken.model", toy_ranks());
  check_refused(strange.with("tokenizer_config.json",
                             {{"added_tokens_decoder", {{"7", {{"content", "x"}}}}}}),
                "expected an id from 258 to 513");
}

TEST_CASE("tokenizer.json files outside the subset are refused by name", "[tokenize]") {
  auto const refused = [](json const& patch, std::string const& words) {
    auto file = toy_json();
    file.merge_patch(patch);
    model_folder folder;
    check_refused(folder.with("tokenizer.json", file), words);
  };
  refused({{"model", {{"type", "Unigram"}}}}, "\"Unigram\" is not supported");
  refused({{"model", {{"byte_fallback", true}}}}, "byte_fallback");
  refused({{"model", {{"continuing_subword_prefix", "##"}}}}, "continuing_subword_prefix");
  refused({{"model", {{"vocab", nullptr}}}}, "`model.vocab` is missing");
  refused({{"model", {{"merges", nullptr}}}}, "`model.merges` is missing");
  refused({{"model", {{"merges", {5}}}}}, "merge 0 is 5");
  refused({{"model", {{"merges", {"a q"}}}}}, "needs a token that the vocabulary does not have");
  refused({{"model", {{"vocab", {{"ab", 3}}}}}}, "the id 3 is used twice");
  refused({{"model", {{"vocab", {{"ab", -1}}}}}}, "has the id -1");
  refused({{"model", {{"vocab", {{"ab", 2'000'000'000}}}}}}, "has the id 2000000000");
  refused({{"model", {{"vocab", {{"ab", "x"}}}}}}, "has the id \"x\"");
  refused({{"normalizer", {{"type", "NFKC"}}}}, "NFKC");
  refused({{"pre_tokenizer", {{"type", "Metaspace"}}}}, "Metaspace");
  refused({{"pre_tokenizer", {{"add_prefix_space", true}}}}, "add_prefix_space");
  refused({{"pre_tokenizer",
            {{"type", "Sequence"},
             {"pretokenizers",
              {{{"type", "Split"}, {"pattern", {{"Regex", "x+"}}}, {"behavior", "Isolated"}}}}}}},
          "does not know the way this pre-tokenizer splits");
  refused({{"added_tokens", {{{"id", 1}}}}}, "has no `content`");
  refused({{"added_tokens", {{{"id", 258}, {"content", "<m>"}, {"lstrip", true}}}}},
          "sets `lstrip`");
}

TEST_CASE("files that are not JSON, not there or nested without end are refused", "[tokenize]") {
  model_folder empty;
  check_refused(empty, "neither tokenizer.json nor tiktoken.model");
  model_folder broken;
  check_refused(broken.with("tokenizer.json", std::string{"{\"model\": "}), "not valid JSON");
  model_folder deep;
  check_refused(deep.with("tokenizer.json", std::string(1'000'000, '[')), "nested 1000000 deep");
  model_folder array;
  check_refused(array.with("tokenizer.json", std::string{"[]"}), "the pre-tokenizer none");
  model_folder eos;
  eos.with("tokenizer.json", toy_json()).with("generation_config.json", {{"eos_token_id", 260}});
  check_refused(eos, "`eos_token_id` is 260, but the vocabulary has 260 tokens");
  model_folder bos;
  bos.with("tokenizer.json", toy_json()).with("tokenizer_config.json", {{"bos_token", "<none>"}});
  check_refused(bos, "`bos_token` is `<none>`");
}
