// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/error.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <vector>

namespace terrace::runtime {

struct sampler_options {
  float temperature = 0.0F;  ///< 0 takes the likeliest token; larger is more varied
  int top_k = 0;             ///< keep the K likeliest tokens; 0 keeps all
  float top_p = 1.0F;  ///< keep the fewest likeliest tokens whose probabilities sum to at least
                       ///< this; 1 keeps all
  float min_p =
      0.0F;  ///< drop tokens less probable than this share of the likeliest one; 0 drops none
  std::uint64_t seed = 0;
};

/// Token with the largest logit; among equal ones the lowest id.
/// Shapes: logits [vocab].
/// Errors: error naming `position` (tokens before this one) and the id when a logit is NaN or +infinity, or when no
///         logit is finite. -infinity rules a token out.
[[nodiscard]] inline std::int32_t argmax(std::span<float const> logits, int position) {
  std::size_t best = 0;
  for (std::size_t id = 0; id < logits.size(); ++id) {
    if (!(logits[id] < std::numeric_limits<float>::infinity())) {
      throw error{"logit " + std::to_string(id) + " after " + std::to_string(position) +
                  " tokens is " + (std::isnan(logits[id]) ? "not a number" : "infinite") +
                  "; the weights hold values that overflow, so check the model file"};
    }
    if (logits[id] > logits[best]) { best = id; }
  }
  if (logits.empty() || std::isinf(logits[best])) {
    throw error{"no logit after " + std::to_string(position) +
                " tokens is finite; check the model file"};
  }
  return static_cast<std::int32_t>(best);
}

/// Chooses the next token from logits.
///
/// Probabilities are those at the temperature; top-k, top-p and min-p then narrow them in that
/// order, and the draw is made among what is left, rescaled to one. The same seed and logits give
/// the same tokens on every platform with the same `exp`.
class sampler {
 public:
  /// Errors: contract_error naming the option and its value when it is outside its range.
  explicit sampler(sampler_options options) : options_{options}, random_{options.seed} {
    require(options.temperature >= 0.0F && std::isfinite(options.temperature),
            "temperature",
            options.temperature,
            "a finite number, 0 or larger");
    require(options.top_k >= 0, "top-k", options.top_k, "0 or larger");
    require(options.top_p > 0.0F && options.top_p <= 1.0F,
            "top-p",
            options.top_p,
            "above 0 and at most 1");
    require(
        options.min_p >= 0.0F && options.min_p <= 1.0F, "min-p", options.min_p, "between 0 and 1");
  }

  /// Shapes: logits [vocab]; `position` counts the tokens before the one chosen, for error sentences.
  /// Errors: as `argmax`.
  /// Cost:   one pass when greedy; otherwise a sort of the candidates, linear in the vocabulary with top-k.
  [[nodiscard]] std::int32_t sample(std::span<float const> logits, int position) {
    auto const likeliest = argmax(logits, position);
    if (options_.temperature == 0.0F) { return likeliest; }
    rank_candidates(logits);
    weigh_candidates(logits, logits[static_cast<std::size_t>(likeliest)]);
    return draw(narrow());
  }

 private:
  static void require(bool holds, char const* name, double value, char const* range) {
    if (!holds) {
      throw contract_error{std::string{"the sampler's "} + name + " is " + std::to_string(value) +
                           "; it must be " + range};
    }
  }

  /// candidate_ = ids, likeliest first (ties: lowest id), cut to top-k.
  void rank_candidates(std::span<float const> logits) {
    candidate_.resize(logits.size());
    std::iota(candidate_.begin(), candidate_.end(), 0);
    auto const likelier = [&](std::int32_t a, std::int32_t b) {
      float const left = logits[static_cast<std::size_t>(a)];
      float const right = logits[static_cast<std::size_t>(b)];
      return left != right ? left > right : a < b;
    };
    auto const kept = options_.top_k == 0
                          ? candidate_.size()
                          : std::min(candidate_.size(), static_cast<std::size_t>(options_.top_k));
    auto const cut = candidate_.begin() + static_cast<std::ptrdiff_t>(kept);
    if (kept < candidate_.size()) {
      std::nth_element(candidate_.begin(), cut, candidate_.end(), likelier);
    }
    candidate_.resize(kept);
    std::sort(candidate_.begin(), candidate_.end(), likelier);
  }

  /// weight_[i] = probability of candidate i relative to the likeliest one's.
  void weigh_candidates(std::span<float const> logits, float largest) {
    weight_.resize(candidate_.size());
    std::transform(candidate_.begin(), candidate_.end(), weight_.begin(), [&](std::int32_t id) {
      return std::exp((static_cast<double>(logits[static_cast<std::size_t>(id)]) - largest) /
                      options_.temperature);
    });
  }

  /// How many candidates top-p and min-p leave; at least one.
  [[nodiscard]] std::size_t narrow() const {
    std::size_t kept = weight_.size();
    if (options_.top_p < 1.0F) {
      double const enough = options_.top_p * std::accumulate(weight_.begin(), weight_.end(), 0.0);
      double sum = 0;
      for (kept = 0; kept < weight_.size() && sum < enough; ++kept) { sum += weight_[kept]; }
    }
    while (kept > 1 && weight_[kept - 1] < options_.min_p) { --kept; }
    return std::max<std::size_t>(kept, 1);
  }

  [[nodiscard]] std::int32_t draw(std::size_t kept) {
    double const total =
        std::accumulate(weight_.begin(), weight_.begin() + static_cast<std::ptrdiff_t>(kept), 0.0);
    double left = static_cast<double>(random_() >> 11U) * 0x1p-53 * total;  // uniform in [0, total)
    std::size_t chosen = 0;
    while (chosen + 1 < kept && left >= weight_[chosen]) { left -= weight_[chosen++]; }
    return candidate_[chosen];
  }

  sampler_options options_;
  std::mt19937_64 random_;
  std::vector<std::int32_t> candidate_;
  std::vector<double> weight_;
};

}  // namespace terrace::runtime
