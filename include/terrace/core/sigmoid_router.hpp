// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace terrace {

/// A router that chooses by sigmoid(logit) + bias and weighs by the sigmoid alone.
struct sigmoid_router {
  std::size_t experts;
  std::size_t top_k;
  bool normalise = true;  ///< weights of a token sum to `scale`
  float scale = 1.0F;
};

}  // namespace terrace
