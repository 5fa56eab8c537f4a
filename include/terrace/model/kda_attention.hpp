// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/error.hpp>
#include <terrace/core/kda_shape.hpp>
#include <terrace/format/catalog.hpp>
#include <terrace/model/config.hpp>
#include <terrace/model/pass.hpp>
#include <terrace/model/residual_stream.hpp>
#include <terrace/model/stream_reader.hpp>
#include <terrace/model/weight_group.hpp>
#include <terrace/sequence/kda_state.hpp>
#include <terrace/sequence/page_layout.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace terrace::model {

/// Kimi delta attention: short convolutions over q, k and v, then a matrix per head that forgets
/// channel by channel and learns each token by the delta rule; a gated norm on the way out.
///
/// The decay is `ssm_a`, -e^A, in GGUF and `A_log` in safetensors. The output gate is one matrix
/// (Kimi K3) or the product of two (Kimi-Linear).
/// Source: Kimi Linear report, arXiv 2510.26692, section 3.
template <class Backend>
class kda_attention {
 public:
  /// What one computation needs beside weights and state; one serves all layers in turn.
  struct workspace {
    typename stream_reader<Backend>::workspace reader;
    typename Backend::activations input, narrow;
    typename Backend::template buffer<float> normed, q, k, v, low, z, beta, gate, mixed, projected;
  };

  kda_attention(format::catalog const& catalog, decoder_config const& config, int layer)
      : config_{config}, layer_{static_cast<std::size_t>(layer)}, weights_{catalog} {
    std::string const prefix = "blk." + std::to_string(layer) + ".";
    int const heads = config.heads;
    int const width = static_cast<int>(config.kda.width());
    int const dim = static_cast<int>(config.kda.dim);
    int const taps = static_cast<int>(config.kda.taps);
    reader_ = stream_reader<Backend>::of_attention(weights_, config, layer);
    constexpr std::array<char const*, 3> names{"q", "k", "v"};
    for (std::size_t i = 0; i < names.size(); ++i) {
      std::string const name = names[i];
      in_[i] = weights_.add(prefix + "attn_" + name + ".weight", width, config.hidden);
      taps_[i] = weights_.add(prefix + "ssm_conv1d_" + name + ".weight", width, taps);
    }
    forget_down_ = weights_.add(prefix + "ssm_f_a.weight", dim, config.hidden);
    forget_up_ = weights_.add(prefix + "ssm_f_b.weight", width, dim);
    beta_ = weights_.add(prefix + "ssm_beta.weight", heads, config.hidden);
    add_rate(prefix);
    dt_bias_ = weights_.add(prefix + "ssm_dt.bias", 1, width);
    if (config.full_gates) {
      gate_ = weights_.add(prefix + "ssm_g.weight", width, config.hidden);
    } else {
      gate_down_ = weights_.add(prefix + "ssm_g_a.weight", dim, config.hidden);
      gate_ = weights_.add(prefix + "ssm_g_b.weight", width, dim);
    }
    norm_ = weights_.add(prefix + "ssm_norm.weight", 1, dim);
    out_ = weights_.add(prefix + "attn_output.weight", config.hidden, width);
  }

  /// How any layer keeps its state.
  [[nodiscard]] static sequence::page_layout state_page(decoder_config const& config) noexcept {
    return sequence::kda_state_page(config.kda);
  }

  [[nodiscard]] weight_group& weights() noexcept { return weights_; }

  /// Adds this layer's attention to the residual stream.
  void add_to(pass<Backend>& run, workspace& work, residual_stream<Backend>& stream) const {
    auto const scope = weights_.enter(run.store, run.backend.stream());
    auto& backend = run.backend;
    std::size_t const tokens = run.tokens;
    std::size_t const width = config_.kda.width();
    auto const state = run.pages.layer(layer_);
    backend.resize(work.normed, stream.values());
    reader_.read(run, work.reader, scope, stream, 0, tokens, work.normed.data());
    backend.prepare(work.input, work.normed.data(), tokens, config_.hidden);

    std::array const rows{&work.q, &work.k, &work.v};
    for (std::size_t i = 0; i < rows.size(); ++i) {
      backend.resize(*rows[i], tokens * width);
      backend.matmul(scope[in_[i]], work.input, rows[i]->data());
      backend.short_convolution(config_.kda, i, scope[taps_[i]], tokens, state, rows[i]->data());
    }
    project(run, work, scope[forget_down_], scope[forget_up_], work.z);
    // How much a token is learned is a sensitive number per head: float32 in both numerics.
    backend.resize(work.beta, tokens * config_.kda.heads);
    backend.matmul_exact(scope[beta_], work.normed.data(), tokens, work.beta.data());
    if (config_.full_gates) {
      backend.resize(work.gate, tokens * width);
      backend.matmul(scope[gate_], work.input, work.gate.data());
    } else {
      project(run, work, scope[gate_down_], scope[gate_], work.gate);
    }

    backend.resize(work.mixed, tokens * width);
    backend.kda(config_.kda,
                {.q = work.q.data(),
                 .k = work.k.data(),
                 .v = work.v.data(),
                 .z = work.z.data(),
                 .beta = work.beta.data(),
                 .rate = scope[rate_],
                 .dt_bias = scope[dt_bias_],
                 .rate_is_logarithm = rate_is_logarithm_},
                tokens,
                state,
                work.mixed.data());
    backend.gated_norm(work.mixed.data(),
                       scope[norm_],
                       work.gate.data(),
                       config_.norm_eps,
                       tokens * config_.kda.heads,
                       work.mixed.data());
    backend.prepare(work.input, work.mixed.data(), tokens, width);
    backend.resize(work.projected, stream.values());
    backend.matmul(scope[out_], work.input, work.projected.data());
    backend.add(work.projected.data(), stream.values(), stream.sum());
  }

 private:
  /// Kimi K3's checkpoints fill A_log up with zeros to a multiple of a head's width; every other
  /// spelling of the decay has one value a head.
  void add_rate(std::string const& prefix) {
    std::string const name = prefix + "ssm_a";
    std::size_t values = config_.kda.heads;
    rate_is_logarithm_ = !weights_.has(name);
    if (rate_is_logarithm_ && config_.kda.decay == kda_decay::bounded) {
      std::size_t const dim = config_.kda.dim;
      values = (values + dim - 1) / dim * dim;
    }
    rate_ = weights_.add_vector(rate_is_logarithm_ ? name + "_log" : name,
                                static_cast<std::int64_t>(values));
  }

  /// out [tokens, width] = up (down input), through a narrow space.
  void project(pass<Backend>& run,
               workspace& work,
               matrix_view const& down,
               matrix_view const& up,
               typename Backend::template buffer<float>& out) const {
    auto& backend = run.backend;
    backend.resize(work.low, run.tokens * config_.kda.dim);
    backend.matmul(down, work.input, work.low.data());
    backend.prepare(work.narrow, work.low.data(), run.tokens, config_.kda.dim);
    backend.resize(out, run.tokens * config_.kda.width());
    backend.matmul(up, work.narrow, out.data());
  }

  decoder_config config_;
  std::size_t layer_;
  weight_group weights_;
  stream_reader<Backend> reader_;
  bool rate_is_logarithm_ = false;
  std::array<std::size_t, 3> in_{}, taps_{};
  std::size_t forget_down_ = 0, forget_up_ = 0, beta_ = 0, rate_ = 0, dt_bias_ = 0, gate_down_ = 0,
              gate_ = 0, norm_ = 0, out_ = 0;
};

}  // namespace terrace::model
