// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

namespace terrace::kernel::reference {

/// Causal attention over contiguous keys and values; token t stands at position first_position + t.
struct attention_call {
  std::size_t tokens, heads, kv_heads, d_k, d_v, first_position;
  float scale;
  float const* q;  ///< [tokens, heads, d_k]
  float const* k;  ///< [first_position + tokens, kv_heads, d_k]
  float const* v;  ///< [first_position + tokens, kv_heads, d_v]
};

/// out [tokens, heads, d_v] = softmax(scale * q . k) v
inline void attention(attention_call const& call, float* out) {
  std::size_t const group = call.heads / call.kv_heads;
  for (std::size_t row = 0; row < call.tokens * call.heads; ++row) {
    std::size_t const positions = call.first_position + row / call.heads + 1;
    std::size_t const kv_head = row % call.heads / group;
    std::vector<double> weight(positions);
    double largest = -std::numeric_limits<double>::infinity();
    for (std::size_t p = 0; p < positions; ++p) {
      double dot = 0;
      for (std::size_t i = 0; i < call.d_k; ++i) {
        dot += static_cast<double>(call.q[row * call.d_k + i]) *
               call.k[(p * call.kv_heads + kv_head) * call.d_k + i];
      }
      weight[p] = dot * call.scale;
      largest = std::max(largest, weight[p]);
    }
    double total = 0;
    for (double& w : weight) { total += w = std::exp(w - largest); }
    for (std::size_t i = 0; i < call.d_v; ++i) {
      double sum = 0;
      for (std::size_t p = 0; p < positions; ++p) {
        sum += weight[p] * call.v[(p * call.kv_heads + kv_head) * call.d_v + i];
      }
      out[row * call.d_v + i] = static_cast<float>(sum / total);
    }
  }
}

}  // namespace terrace::kernel::reference
