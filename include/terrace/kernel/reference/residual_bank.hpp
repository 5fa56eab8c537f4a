// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <vector>

namespace terrace::kernel::reference {

/// y[t] = sum over candidates of softmax(score) * candidate, the score of a candidate v being
/// dot(v / sqrt(mean(v^2) + eps), weight).
///
/// Shapes: each candidate [tokens, cols]; weight [cols]; y [tokens, cols];
/// shares, if not null, [tokens, candidates]: the softmax.
inline void mix_bank(std::span<float const* const> candidates,
                     float const* weight,
                     float eps,
                     std::size_t tokens,
                     std::size_t cols,
                     float* y,
                     float* shares = nullptr) {
  std::vector<double> scores(candidates.size());
  for (std::size_t t = 0; t < tokens; ++t) {
    for (std::size_t n = 0; n < candidates.size(); ++n) {
      float const* const v = candidates[n] + t * cols;
      double squares = 0, dot = 0;
      for (std::size_t c = 0; c < cols; ++c) {
        squares += static_cast<double>(v[c]) * v[c];
        dot += static_cast<double>(v[c]) * weight[c];
      }
      scores[n] = dot / std::sqrt(squares / static_cast<double>(cols) + eps);
    }
    double const largest = *std::max_element(scores.begin(), scores.end());
    double total = 0;
    for (double& one : scores) { total += one = std::exp(one - largest); }
    std::vector<double> sum(cols);
    for (std::size_t n = 0; n < candidates.size(); ++n) {
      for (std::size_t c = 0; c < cols; ++c) {
        sum[c] += scores[n] / total * candidates[n][t * cols + c];
      }
      if (shares != nullptr) {
        shares[t * candidates.size() + n] = static_cast<float>(scores[n] / total);
      }
    }
    for (std::size_t c = 0; c < cols; ++c) { y[t * cols + c] = static_cast<float>(sum[c]); }
  }
}

}  // namespace terrace::kernel::reference
