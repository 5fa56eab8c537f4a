// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/block.hpp>

namespace terrace {

/// What one layer of Kimi delta attention reads of each token after the short convolutions, and the
/// vectors of the layer as they lie in their blocks. q, k, z and beta are overwritten.
struct kda_values {
  float* q;                ///< [tokens, heads, dim]
  float* k;                ///< [tokens, heads, dim]
  float const* v;          ///< [tokens, heads, dim]
  float* z;                ///< [tokens, heads, dim], before dt_bias
  float* beta;             ///< [tokens, heads], before the sigmoid
  matrix_view rate;        ///< [1, heads] or longer, of which the first `heads` count
  matrix_view dt_bias;     ///< [1, heads * dim]
  bool rate_is_logarithm;  ///< true: A_log; false: -e^A_log, as GGUF has it
};

}  // namespace terrace
