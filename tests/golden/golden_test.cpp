// SPDX-License-Identifier: Apache-2.0
// Every number in golden.json: the outputs of an independent implementation in float32.
#include "support/golden_file.hpp"
#include "support/golden_models.hpp"
#include "support/running_model.hpp"

#include <terrace/tokenize/chat.hpp>

#include <catch2/catch_template_test_macros.hpp>
#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <vector>

namespace terrace::golden {
namespace {

constexpr double near_tie = 1e-4;  ///< a smaller gap between two logits is decided by rounding
constexpr double logits_distance = 1e-4;
constexpr double nll_difference = 1e-4;
/// A router decides a near tie by rounding; the token after it may then differ by this much.
constexpr double nll_after_flip = 0.1;

/// Feeds the golden continuation, so that one near tie does not hide what follows it.
void check_greedy(running_model& model,
                  std::vector<float> logits,
                  std::vector<std::int32_t> const& greedy,
                  std::vector<double> const& gap) {
  for (std::size_t step = 0; step < greedy.size(); ++step) {
    INFO("greedy token " << step << ", recorded gap " << gap[step]);
    if (gap[step] >= near_tie) { CHECK(argmax_of(logits) == greedy[step]); }
    if (step + 1 < greedy.size()) { logits = model.append(greedy[step]); }
  }
}

void check_prompt(running_model& model, expectation const& expected) {
  auto const logits = model.logits(expected.ids);
  CHECK(relative_distance(logits, expected.last_logits) <= logits_distance);
  check_greedy(model, logits, expected.greedy, expected.greedy_gap);
}

/// One token at a time, so that decoding is compared at every position too.
void check_each_position(running_model& model, expectation const& expected) {
  model.pipeline().reset();
  for (std::size_t at = 0; at < expected.ids.size(); ++at) {
    auto const logits = model.append(expected.ids[at]);
    INFO("position " << at);
    double const gap = double{expected.top20_logits[at * 20]} - expected.top20_logits[at * 20 + 1];
    if (gap >= near_tie) { CHECK(argmax_of(logits) == expected.argmax[at]); }
    CHECK(std::abs(*std::max_element(logits.begin(), logits.end()) -
                   expected.top20_logits[at * 20]) < 1e-3);
  }
}

void check_routing(running_model& model, expectation const& expected, golden_file const& golden) {
  std::vector<std::uint16_t> chosen;
  model.pipeline().record_routing(&chosen);
  static_cast<void>(model.logits(expected.ids));
  model.pipeline().record_routing(nullptr);
  REQUIRE(chosen.size() == expected.router_ids.size());
  auto const set_at = [&](std::vector<std::uint16_t> const& all, std::size_t set) {
    auto const first = all.begin() + static_cast<std::ptrdiff_t>(set * golden.top_k);
    return std::set<int>{first, first + static_cast<std::ptrdiff_t>(golden.top_k)};
  };
  for (std::size_t set = 0; set < chosen.size() / golden.top_k; ++set) {
    INFO("token " << set / golden.moe_layers << ", mixture layer " << set % golden.moe_layers);
    CHECK(set_at(chosen, set) == set_at(expected.router_ids, set));
  }
}

double nll_mean(running_model& model,
                golden_file const& golden,
                double most_apart,
                double worst_apart) {
  double mean = 0;
  for (auto const& window : golden.windows) {
    auto const nll = model.pipeline().nll(window.ids);
    REQUIRE(nll.size() == window.nll.size());
    double sum = 0, expected = 0, worst = 0;
    for (std::size_t i = 0; i < nll.size(); ++i) {
      sum += nll[i];
      expected += window.nll[i];
      worst = std::max(worst, std::abs(double{nll[i]} - window.nll[i]));
    }
    auto const count = static_cast<double>(nll.size());
    CHECK(std::abs(sum - expected) / count <= most_apart);
    CHECK(worst <= worst_apart);
    mean += sum / count / static_cast<double>(golden.windows.size());
  }
  return mean;
}

void check_all_outputs(golden_model const& which) {
  INFO(which.name);
  auto const golden = read_golden(which.golden);
  running_model model{which.weights};
  for (auto const& prompt : golden.prompts) {
    INFO("prompt " << prompt.name);
    for (auto const& expected : prompt.results) {
      check_prompt(model, expected);
      if (!expected.router_ids.empty()) { check_routing(model, expected, golden); }
      if (!expected.top20_logits.empty() && expected.ids.size() < 80) {
        check_each_position(model, expected);
      }
    }
  }
  CHECK(std::abs(nll_mean(model, golden, nll_difference, nll_after_flip) - golden.nll_mean) <=
        nll_difference);
}

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
