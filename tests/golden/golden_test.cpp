// SPDX-License-Identifier: Apache-2.0
// Every number in golden.json: the outputs of an independent implementation in float32.
#include "support/golden_file.hpp"
#include "support/golden_models.hpp"
#include "support/reference_checks.hpp"
#include "support/running_model.hpp"

#include <terrace/tokenize/chat.hpp>

#include <catch2/catch_template_test_macros.hpp>
#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

namespace terrace::golden {
namespace {

void check_text(golden_model const& which) {
  INFO(which.name);
  auto const golden = read_golden(which.golden);
  running_model model{which.weights};
  auto const tokenizer = runner::open_tokenizer(model.catalog());
  for (auto const& prompt : golden.prompts) {
    INFO("prompt " << prompt.name);
    CHECK(tokenizer.encode(prompt.text, true) == prompt.ids);
    CHECK(runner::encode_text(tokenizer, prompt.text) ==
          (tokenizer.add_bos() ? prompt.ids_bos : prompt.ids));
  }
  for (auto const& chat : golden.chats) {
    INFO("chat " << chat.name);
    auto const prompt = tokenize::chat_prompt(
        tokenizer,
        chat.messages,
        {.add_generation_prompt = chat.asks, .thinking = chat.thinking, .now = {}});
    CHECK(tokenize::join(prompt) == chat.rendered);
    CHECK(tokenizer.encode(prompt) == chat.ids);
    if (chat.greedy.empty()) { continue; }
    check_greedy(model, model.logits(chat.ids), chat.greedy, chat.greedy_gap);
    auto const end = std::find_if(
        chat.greedy.begin(), chat.greedy.end(), [&](auto id) { return tokenizer.is_end(id); });
    CHECK((end != chat.greedy.end()) == chat.stopped);
    if (chat.stopped) { CHECK(end + 1 == chat.greedy.end()); }
  }
}

TEMPLATE_TEST_CASE(
    "exact numerics reproduce the reference's logits, tokens, experts and likelihoods from GGUF",
    "[golden]",
    llama_tiny,
    minimax_m2_tiny,
    kimi_k2_tiny,
    kimi_k3_tiny) {
  check_all_outputs(reference_model(TestType::name, false));
}

TEMPLATE_TEST_CASE(
    "exact numerics reproduce the reference's logits, tokens, experts and likelihoods from "
    "safetensors",
    "[golden]",
    llama_tiny,
    minimax_m2_tiny,
    kimi_k2_tiny,
    kimi_k3_tiny) {
  check_all_outputs(reference_model(TestType::name, true));
}

TEMPLATE_TEST_CASE("texts and chats become the reference's ids, and chats its answers",
                   "[golden]",
                   llama_tiny,
                   minimax_m2_tiny,
                   kimi_k2_tiny,
                   kimi_k3_tiny) {
  check_text(reference_model(TestType::name, false));
  check_text(reference_model(TestType::name, true));
}

TEMPLATE_TEST_CASE("fast numerics stay within 0.3 % of the reference's likelihood",
                   "[golden]",
                   llama_tiny,
                   minimax_m2_tiny,
                   kimi_k2_tiny,
                   kimi_k3_tiny) {
  auto const which = reference_model(TestType::name, false);
  auto const golden = read_golden(which.golden);
  running_model model{which.weights, {.mode = numerics::fast}};
  CHECK(std::abs(nll_mean(model, golden, 0.1, 10) / golden.nll_mean - 1) <= 0.003);
}

TEMPLATE_TEST_CASE("the committed models give the outputs recorded beside them",
                   "[golden]",
                   llama_tiny,
                   minimax_m2_tiny,
                   kimi_k2_tiny) {
  auto const which = committed_model(TestType::name);
  check_all_outputs(which);
  check_text(which);
}

}  // namespace
}  // namespace terrace::golden
