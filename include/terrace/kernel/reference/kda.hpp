// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/kda_shape.hpp>

#include <cmath>
#include <cstddef>
#include <vector>

/// Kimi delta attention in plain loops and double precision, one token after the other.
/// Source: Kimi Linear report, arXiv 2510.26692, section 3; the bounded decay is Kimi K3's.
namespace terrace::kernel::reference {

[[nodiscard]] inline double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

/// y[t] = silu(sum over j of taps[c, j] * x[t - (n - 1) + j]), c a channel: depthwise and causal.
///
/// Shapes: x, y [tokens, channels]; taps [channels, n]; history [n - 1, channels], the inputs
/// before x, oldest first; afterwards the last n - 1 inputs. y must not be x.
inline void short_convolution(float const* x,
                              float const* taps,
                              std::size_t n,
                              std::size_t tokens,
                              std::size_t channels,
                              float* history,
                              float* y) {
  std::vector<float> all(history, history + (n - 1) * channels);
  all.insert(all.end(), x, x + tokens * channels);
  for (std::size_t t = 0; t < tokens; ++t) {
    for (std::size_t c = 0; c < channels; ++c) {
      double sum = 0;
      for (std::size_t j = 0; j < n; ++j) {
        sum += static_cast<double>(taps[c * n + j]) * all[(t + j) * channels + c];
      }
      y[t * channels + c] = static_cast<float>(sum * sigmoid(sum));
    }
  }
  for (std::size_t i = 0; i < (n - 1) * channels; ++i) { history[i] = all[tokens * channels + i]; }
}

/// The log-decay of a channel; `rate` is e^A_log of its head, `s` is z + dt_bias.
[[nodiscard]] inline double log_decay(kda_shape const& shape, double rate, double s) {
  if (shape.decay == kda_decay::bounded) { return shape.bound * sigmoid(rate * s); }
  return -rate * (s > 0 ? s + std::log1p(std::exp(-s)) : std::log1p(std::exp(s)));
}

/// What a layer of Kimi delta attention reads of each token, after the short convolutions.
struct kda_inputs {
  float const* q;        ///< [tokens, heads, dim], as convolved
  float const* k;        ///< [tokens, heads, dim]
  float const* v;        ///< [tokens, heads, dim]
  float const* z;        ///< [tokens, heads, dim], before dt_bias
  float const* beta;     ///< [tokens, heads], before the sigmoid
  float const* rate;     ///< [heads], e^A_log
  float const* dt_bias;  ///< [heads, dim]
};

/// The delta rule with a decay per channel: with q and k normed to length 1 and q over sqrt(dim),
/// S = diag(e^g) S;  S += k (beta (v - S^T k))^T;  out = S^T q.
///
/// Shapes: state [heads, dim of keys, dim of values] in and out; out [tokens, heads, dim].
inline void kda(
    kda_shape const& shape, kda_inputs const& in, std::size_t tokens, float* state, float* out) {
  std::size_t const d = shape.dim;
  std::vector<double> all(state, state + shape.matrix_values());
  std::vector<double> q(d), k(d), u(d);
  auto const unit = [&](float const* from, double scale, std::vector<double>& to) {
    double squares = 0;
    for (std::size_t i = 0; i < d; ++i) { squares += static_cast<double>(from[i]) * from[i]; }
    for (std::size_t i = 0; i < d; ++i) { to[i] = from[i] / std::sqrt(squares + 1e-6) * scale; }
  };
  for (std::size_t t = 0; t < tokens; ++t) {
    for (std::size_t h = 0; h < shape.heads; ++h) {
      std::size_t const at = (t * shape.heads + h) * d;
      double* const s = all.data() + h * d * d;
      unit(in.q + at, 1.0 / std::sqrt(static_cast<double>(d)), q);
      unit(in.k + at, 1.0, k);
      for (std::size_t i = 0; i < d; ++i) {
        double const shifted = static_cast<double>(in.z[at + i]) + in.dt_bias[h * d + i];
        double const keep = std::exp(log_decay(shape, in.rate[h], shifted));
        for (std::size_t j = 0; j < d; ++j) { s[i * d + j] *= keep; }
      }
      double const beta = sigmoid(in.beta[t * shape.heads + h]);
      for (std::size_t j = 0; j < d; ++j) {
        double predicted = 0;
        for (std::size_t i = 0; i < d; ++i) { predicted += s[i * d + j] * k[i]; }
        u[j] = beta * (in.v[at + j] - predicted);
      }
      for (std::size_t j = 0; j < d; ++j) {
        double sum = 0;
        for (std::size_t i = 0; i < d; ++i) {
          s[i * d + j] += k[i] * u[j];
          sum += s[i * d + j] * q[i];
        }
        out[at + j] = static_cast<float>(sum);
      }
    }
  }
  for (std::size_t i = 0; i < all.size(); ++i) { state[i] = static_cast<float>(all[i]); }
}

/// y = weight * x / sqrt(mean(x^2) + eps) * sigmoid(gate), rows of `cols` that share the weight.
inline void gated_norm(float const* x,
                       float const* weight,
                       float const* gate,
                       float eps,
                       std::size_t rows,
                       std::size_t cols,
                       float* y) {
  for (std::size_t r = 0; r < rows; ++r) {
    double squares = 0;
    for (std::size_t c = 0; c < cols; ++c) {
      squares += static_cast<double>(x[r * cols + c]) * x[r * cols + c];
    }
    double const factor = 1.0 / std::sqrt(squares / static_cast<double>(cols) + eps);
    for (std::size_t c = 0; c < cols; ++c) {
      std::size_t const at = r * cols + c;
      y[at] = static_cast<float>(x[at] * factor * weight[c] * sigmoid(gate[at]));
    }
  }
}

}  // namespace terrace::kernel::reference
