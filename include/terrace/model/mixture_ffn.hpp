// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/ids.hpp>
#include <terrace/core/sigmoid_router.hpp>
#include <terrace/format/catalog.hpp>
#include <terrace/model/config.hpp>
#include <terrace/model/dense_ffn.hpp>
#include <terrace/model/host_experts.hpp>
#include <terrace/model/pass.hpp>
#include <terrace/model/weight_group.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace terrace::model {

/// A feed-forward layer of routed experts, with shared experts where the model has them.
template <class Backend>
class mixture_ffn {
 public:
  mixture_ffn(format::catalog const& catalog, decoder_config const& config, int layer)
      : config_{config},
        layer_{static_cast<std::uint32_t>(layer)},
        weights_{catalog},
        experts_{catalog, config, layer} {
    std::string const prefix = "blk." + std::to_string(layer) + ".";
    norm_ = weights_.add(prefix + "ffn_norm.weight", 1, config.hidden);
    router_ = weights_.add(prefix + "ffn_gate_inp.weight", config.experts, config.hidden);
    bias_ = weights_.add(prefix + "exp_probs_b.bias", 1, config.experts);
    if (config.shared_experts > 0) {
      shared_.emplace(
          weights_, prefix, "_shexp", config.hidden, config.shared_experts * config.expert_width);
    }
    check_experts(catalog);
  }

  [[nodiscard]] weight_group& weights() noexcept { return weights_; }

  /// Adds this layer to the residual stream x [tokens, hidden]. `next` is the following mixture
  /// layer, if any: its router is scored on this layer's input when the pass looks ahead and the
  /// router is held.
  void add_to(pass<Backend>& run, float* x, mixture_ffn* next) {
    auto const scope = weights_.enter(run.store);
    auto& backend = run.backend;
    std::size_t const values = run.tokens * static_cast<std::size_t>(config_.hidden);
    normed_.resize(values);
    backend.rms_norm(x, scope[norm_], config_.norm_eps, run.tokens, normed_.data());
    backend.prepare(input_, normed_.data(), run.tokens, config_.hidden);
    route(run, scope);
    record_routing(run);
    if (run.look_ahead && next != nullptr && next->weights_.held()) { next->score_early(run, x); }

    sum_.resize(values);
    backend.zero(sum_.data(), values);
    experts_.add_to(run, input_, chosen_.data(), gates_.data(), sum_.data());
    if (shared_) { shared_->add_to(run, scope, input_, sum_.data()); }
    backend.add(sum_.data(), values, x);
  }

 private:
  void check_experts(format::catalog const& catalog) const {
    for (int expert = 0; expert < config_.experts; ++expert) {
      auto const* info = catalog.find_block(
          expert_block(layer_id{layer_}, expert_id{static_cast<std::uint32_t>(expert)}));
      auto const sized = [&](std::size_t matrix, int rows, int cols) {
        auto const& layout = info->matrices[matrix];
        return layout.rows == static_cast<std::uint64_t>(rows) &&
               layout.cols == static_cast<std::uint64_t>(cols);
      };
      bool const fits = info != nullptr && info->matrices.size() == 3 &&
                        sized(0, config_.expert_width, config_.hidden) &&
                        sized(1, config_.expert_width, config_.hidden) &&
                        sized(2, config_.hidden, config_.expert_width);
      if (!fits) {
        throw format_error{catalog.files().front().string() + ": expert " + std::to_string(expert) +
                           " of layer " + std::to_string(layer_) + " is missing or is not " +
                           std::to_string(config_.expert_width) + " x " +
                           std::to_string(config_.hidden) +
                           "; the file is damaged or of another model"};
      }
    }
  }

  [[nodiscard]] sigmoid_router router() const noexcept {
    return {.experts = static_cast<std::size_t>(config_.experts),
            .top_k = static_cast<std::size_t>(config_.top_k),
            .normalise = config_.normalise_weights,
            .scale = config_.weights_scale};
  }

  /// chosen_ and gates_ [tokens, top_k]. The router's product keeps float32 activations in both
  /// numerics: a flipped near tie changes the result more than all other rounding.
  void route(pass<Backend>& run, weight_group::scope const& scope) {
    std::size_t const k = static_cast<std::size_t>(config_.top_k);
    logits_.resize(run.tokens * static_cast<std::size_t>(config_.experts));
    chosen_.resize(run.tokens * k);
    gates_.resize(run.tokens * k);
    run.backend.matmul_exact(scope[router_], normed_.data(), run.tokens, logits_.data());
    run.backend.route(
        router(), logits_.data(), scope[bias_], run.tokens, chosen_.data(), gates_.data());
  }

  void record_routing(pass<Backend>& run) {
    if (run.routing == nullptr) { return; }
    std::size_t const k = static_cast<std::size_t>(config_.top_k);
    auto const chosen = run.backend.read(chosen_.data(), run.tokens * k, chosen_here_);
    auto const gates = run.backend.read(gates_.data(), run.tokens * k, gates_here_);
    std::vector<std::size_t> order(k);
    for (std::size_t t = 0; t < run.tokens; ++t) {
      for (std::size_t i = 0; i < k; ++i) { order[i] = t * k + i; }
      std::stable_sort(
          order.begin(), order.end(), [&](auto a, auto b) { return gates[a] > gates[b]; });
      for (auto const at : order) {
        run.routing->push_back(static_cast<std::uint16_t>(chosen[at]));
      }
    }
  }

  /// Tells the store which experts of this layer the previous mixture layer's input already points
  /// to.
  void score_early(pass<Backend>& run, float const* x) {
    auto const scope = weights_.enter(run.store);
    std::size_t const last = run.tokens - 1;
    normed_.resize(static_cast<std::size_t>(config_.hidden));
    run.backend.rms_norm(
        x + last * config_.hidden, scope[norm_], config_.norm_eps, 1, normed_.data());
    std::size_t const k = static_cast<std::size_t>(config_.top_k);
    logits_.resize(static_cast<std::size_t>(config_.experts));
    chosen_.resize(k);
    gates_.resize(k);
    run.backend.matmul_exact(scope[router_], normed_.data(), 1, logits_.data());
    run.backend.route(router(), logits_.data(), scope[bias_], 1, chosen_.data(), gates_.data());
    run.store.hint({.layer = layer_id{layer_},
                    .experts = run.backend.read(chosen_.data(), k, chosen_here_),
                    .scores = run.backend.read(gates_.data(), k, gates_here_)});
  }

  decoder_config config_;
  std::uint32_t layer_;
  weight_group weights_;
  std::size_t norm_ = 0, router_ = 0, bias_ = 0;
  std::optional<gated_mlp<Backend>> shared_;
  typename Backend::activations input_;
  host_experts<Backend> experts_;
  typename Backend::template buffer<expert_id> chosen_;
  typename Backend::template buffer<float> normed_, logits_, gates_, sum_;
  std::vector<expert_id> chosen_here_;  ///< where the host reads them
  std::vector<float> gates_here_;
};

}  // namespace terrace::model
