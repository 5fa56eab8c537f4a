// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace terrace {

/// What joins the two halves of a gated feed-forward layer: `swiglu` is silu(gate) * up, `situ`
/// saturates both, beta tanh(gate / beta) sigmoid(gate) * linear_beta tanh(up / linear_beta).
struct gated_activation {
  enum class kind { swiglu, situ };
  kind type = kind::swiglu;
  float beta = 0;         ///< of situ
  float linear_beta = 0;  ///< of situ
};

}  // namespace terrace
