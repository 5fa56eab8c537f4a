// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

namespace terrace::kernel::reference {

/// One token's choice: expert numbers by descending biased score, and their weights.
struct route {
  std::vector<std::size_t> experts;
  std::vector<float> weights;
};

/// Chooses the `top_k` of logits.size() experts with the largest sigmoid(logit) + bias; the weight
/// is the sigmoid, divided by the sum of the chosen when `normalise`, times `scale`. Ties go to the
/// lower number.
inline route route_sigmoid(std::vector<float> const& logits,
                           std::vector<float> const& bias,
                           std::size_t top_k,
                           bool normalise,
                           float scale) {
  auto const score = [&](std::size_t e) {
    return 1.0 / (1.0 + std::exp(-static_cast<double>(logits[e])));
  };
  route chosen;
  chosen.experts.resize(logits.size());
  std::iota(chosen.experts.begin(), chosen.experts.end(), std::size_t{0});
  std::stable_sort(chosen.experts.begin(), chosen.experts.end(), [&](std::size_t a, std::size_t b) {
    return score(a) + bias[a] > score(b) + bias[b];
  });
  chosen.experts.resize(top_k);
  double total = 1e-20;
  for (auto const e : chosen.experts) { total += score(e); }
  for (auto const e : chosen.experts) {
    chosen.weights.push_back(static_cast<float>(score(e) / (normalise ? total : 1.0) * scale));
  }
  return chosen;
}

}  // namespace terrace::kernel::reference
