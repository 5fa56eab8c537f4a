// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "golden_file.hpp"
#include "golden_models.hpp"
#include "running_model.hpp"

#include <catch2/catch_message.hpp>
#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <set>
#include <vector>

/// Comparisons of a running model with the outputs of an independent implementation.
namespace terrace::golden {

inline constexpr double near_tie =
    1e-4;  ///< a smaller gap between two logits is decided by rounding
inline constexpr double logits_distance = 1e-4;
inline constexpr double nll_difference = 1e-4;
/// A router decides a near tie by rounding; the token after it may then differ by this much.
inline constexpr double nll_after_flip = 0.1;

/// Feeds the golden continuation, so that one near tie does not hide what follows it.
inline void check_greedy(running_model& model,
                         std::vector<float> logits,
                         std::vector<std::int32_t> const& greedy,
                         std::vector<double> const& gap) {
  for (std::size_t step = 0; step < greedy.size(); ++step) {
    INFO("greedy token " << step << ", recorded gap " << gap[step]);
    if (gap[step] >= near_tie) { CHECK(argmax_of(logits) == greedy[step]); }
    if (step + 1 < greedy.size()) { logits = model.append(greedy[step]); }
  }
}

inline void check_prompt(running_model& model, expectation const& expected) {
  auto const logits = model.logits(expected.ids);
  CHECK(relative_distance(logits, expected.last_logits) <= logits_distance);
  check_greedy(model, logits, expected.greedy, expected.greedy_gap);
}

/// One token at a time, so that decoding is compared at every position too.
inline void check_each_position(running_model& model, expectation const& expected) {
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

inline void check_routing(running_model& model,
                          expectation const& expected,
                          golden_file const& golden) {
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

inline double nll_mean(running_model& model,
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

/// Everything in the golden file: logits, tokens, experts and likelihoods.
inline void check_all_outputs(running_model& model, golden_file const& golden) {
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
inline void check_all_outputs(golden_model const& which) {
  INFO(which.name);
  running_model model{which.weights};
  check_all_outputs(model, read_golden(which.golden));
}

}  // namespace terrace::golden
