// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "random_values.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

namespace terrace::synth {

/// Spread of router logits over tokens; the router's weights are made for it.
inline constexpr double router_spread = 1.5;

/// How often each of `experts` is to be chosen when `top_k` are chosen by a Zipf law of `exponent`,
/// most often first. An expert cannot be chosen twice by a token: what a share would have above
/// 0.95 goes to the others.
[[nodiscard]] inline std::vector<double> zipf_shares(int experts, int top_k, double exponent) {
  std::vector<double> weights;
  for (int rank = 1; rank <= experts; ++rank) { weights.push_back(std::pow(rank, -exponent)); }
  double const most = std::max(0.95, static_cast<double>(top_k) / experts);
  std::vector<double> shares(weights.size());
  for (std::size_t capped = 0; capped < weights.size(); ++capped) {
    double const rest =
        std::accumulate(weights.begin() + static_cast<std::ptrdiff_t>(capped), weights.end(), 0.0);
    double const each = (top_k - most * static_cast<double>(capped)) / rest;
    for (std::size_t i = 0; i < weights.size(); ++i) {
      shares[i] = i < capped ? most : each * weights[i];
    }
    if (each * weights[capped] <= most) { break; }
  }
  return shares;
}

/// Correction biases of a router under which its experts are chosen by a Zipf law, most often
/// first. An expert is chosen when its score, a sigmoid of a normal logit, and its bias exceed a
/// threshold common to all: the bias is what is missing between the score an expert exceeds as
/// often as it is to be chosen, and that threshold.
[[nodiscard]] inline std::vector<float> ranked_bias(int experts, int top_k, double exponent) {
  std::vector<float> bias;
  double mean = 0;
  for (double const share : zipf_shares(experts, top_k, exponent)) {
    double const p = std::clamp(1 - share, 1e-9, 1 - 1e-9);
    double const score = 1 / (1 + std::exp(-router_spread * normal_quantile(p)));
    bias.push_back(static_cast<float>(-score));
    mean += score / experts;
  }
  for (float& one : bias) { one += static_cast<float>(mean); }
  return bias;
}

/// The same biases, the ranks dealt out to the experts by `words`.
[[nodiscard]] inline std::vector<float> dealt(std::vector<float> bias, random_words const& words) {
  for (std::size_t i = bias.size(); i > 1; --i) {
    std::swap(bias[i - 1], bias[static_cast<std::size_t>(words(i) % i)]);
  }
  return bias;
}

}  // namespace terrace::synth
