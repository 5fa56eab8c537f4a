// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/format/catalog.hpp>
#include <terrace/model/config.hpp>
#include <terrace/model/pass.hpp>
#include <terrace/model/weight_group.hpp>

#include <cstddef>
#include <string>

namespace terrace::model {

/// down(silu(gate x) * up x) with its three matrices in a weight group of the caller.
template <class Backend>
class gated_mlp {
 public:
  gated_mlp() = default;
  /// `suffix` distinguishes the plain layer ("") from shared experts ("_shexp").
  gated_mlp(weight_group& weights,
            std::string const& prefix,
            std::string const& suffix,
            int hidden,
            int width)
      : hidden_{hidden}, width_{width} {
    gate_ = weights.add(prefix + "ffn_gate" + suffix + ".weight", width, hidden);
    up_ = weights.add(prefix + "ffn_up" + suffix + ".weight", width, hidden);
    down_ = weights.add(prefix + "ffn_down" + suffix + ".weight", hidden, width);
  }

  /// Adds the result for `input` [tokens, hidden] to `sum` [tokens, hidden].
  void add_to(pass<Backend>& run,
              weight_group::scope const& scope,
              typename Backend::activations const& input,
              float* sum) {
    auto& backend = run.backend;
    std::size_t const inner = run.tokens * static_cast<std::size_t>(width_);
    std::size_t const outer = run.tokens * static_cast<std::size_t>(hidden_);
    gate_values_.resize(inner);
    up_values_.resize(inner);
    result_.resize(outer);
    backend.matmul(scope[gate_], input, gate_values_.data());
    backend.matmul(scope[up_], input, up_values_.data());
    backend.swiglu(gate_values_.data(), up_values_.data(), inner, gate_values_.data());
    backend.prepare(inner_, gate_values_.data(), run.tokens, width_);
    backend.matmul(scope[down_], inner_, result_.data());
    backend.add(result_.data(), outer, sum);
  }

 private:
  int hidden_ = 0, width_ = 0;
  std::size_t gate_ = 0, up_ = 0, down_ = 0;
  typename Backend::activations inner_;
  typename Backend::template buffer<float> gate_values_, up_values_, result_;
};

/// A feed-forward layer without experts.
template <class Backend>
class dense_ffn {
 public:
  dense_ffn(format::catalog const& catalog, decoder_config const& config, int layer)
      : config_{config}, weights_{catalog} {
    std::string const prefix = "blk." + std::to_string(layer) + ".";
    norm_ = weights_.add(prefix + "ffn_norm.weight", 1, config.hidden);
    mlp_ = gated_mlp<Backend>{weights_, prefix, "", config.hidden, config.dense_width};
  }

  [[nodiscard]] weight_group& weights() noexcept { return weights_; }

  /// Adds this layer to the residual stream x [tokens, hidden].
  void add_to(pass<Backend>& run, float* x) {
    auto const scope = weights_.enter(run.store);
    normed_.resize(run.tokens * static_cast<std::size_t>(config_.hidden));
    run.backend.rms_norm(x, scope[norm_], config_.norm_eps, run.tokens, normed_.data());
    run.backend.prepare(input_, normed_.data(), run.tokens, config_.hidden);
    mlp_.add_to(run, scope, input_, x);
  }

 private:
  decoder_config config_;
  weight_group weights_;
  std::size_t norm_ = 0;
  gated_mlp<Backend> mlp_;
  typename Backend::activations input_;
  typename Backend::template buffer<float> normed_;
};

}  // namespace terrace::model
