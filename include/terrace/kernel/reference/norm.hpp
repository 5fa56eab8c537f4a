// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstddef>

namespace terrace::kernel::reference {

/// y = weight * x / sqrt(mean(x^2) + eps) for rows x, y [tokens, cols].
inline void rms_norm(float const* x,
                     float const* weight,
                     float eps,
                     std::size_t tokens,
                     std::size_t cols,
                     float* y) {
  for (std::size_t t = 0; t < tokens; ++t) {
    double sum = 0;
    for (std::size_t c = 0; c < cols; ++c) {
      sum += static_cast<double>(x[t * cols + c]) * x[t * cols + c];
    }
    double const factor = 1.0 / std::sqrt(sum / static_cast<double>(cols) + eps);
    for (std::size_t c = 0; c < cols; ++c) {
      y[t * cols + c] =
          static_cast<float>(x[t * cols + c] * factor * (weight == nullptr ? 1.0F : weight[c]));
    }
  }
}

}  // namespace terrace::kernel::reference
