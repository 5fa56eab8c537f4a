// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/block.hpp>
#include <terrace/kernel/reference/matmul.hpp>

#include <cmath>
#include <cstddef>
#include <vector>

namespace terrace::kernel::reference {

/// y[i] = silu(gate[i]) * up[i]
inline void swiglu(float const* gate, float const* up, std::size_t n, float* y) {
  for (std::size_t i = 0; i < n; ++i) {
    double const g = gate[i];
    y[i] = static_cast<float>(g / (1.0 + std::exp(-g)) * up[i]);
  }
}

/// y[i] = beta tanh(gate[i] / beta) sigmoid(gate[i]) * linear_beta tanh(up[i] / linear_beta)
inline void situ(
    float const* gate, float const* up, float beta, float linear_beta, std::size_t n, float* y) {
  for (std::size_t i = 0; i < n; ++i) {
    double const g = gate[i];
    double const u = up[i];
    y[i] = static_cast<float>(beta * std::tanh(g / beta) / (1.0 + std::exp(-g)) * linear_beta *
                              std::tanh(u / linear_beta));
  }
}

/// out = down(silu(gate x) * up x).
/// Shapes: gate, up [d_ff, d_model], down [d_model, d_ff], x, out [tokens, d_model].
inline void expert_ffn(matrix_view const& gate,
                       matrix_view const& up,
                       matrix_view const& down,
                       float const* x,
                       std::size_t tokens,
                       float* out) {
  std::size_t const d_ff = gate.rows;
  std::vector<float> g(tokens * d_ff);
  std::vector<float> u(tokens * d_ff);
  matmul(gate, x, tokens, g.data(), d_ff);
  matmul(up, x, tokens, u.data(), d_ff);
  swiglu(g.data(), u.data(), tokens * d_ff, g.data());
  matmul(down, g.data(), tokens, out, down.rows);
}

}  // namespace terrace::kernel::reference
