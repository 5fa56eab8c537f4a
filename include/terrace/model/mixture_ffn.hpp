// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/ids.hpp>
#include <terrace/core/sigmoid_router.hpp>
#include <terrace/format/catalog.hpp>
#include <terrace/model/config.hpp>
#include <terrace/model/dense_ffn.hpp>
#include <terrace/model/device_experts.hpp>
#include <terrace/model/host_experts.hpp>
#include <terrace/model/pass.hpp>
#include <terrace/model/residual_stream.hpp>
#include <terrace/model/stream_reader.hpp>
#include <terrace/model/weight_group.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

namespace terrace::model {

/// A feed-forward layer of routed experts, with shared experts where the model has them.
///
/// In a latent mixture (Kimi K3) routed experts read a projection of the input and write as narrow;
/// their weighted sum is normed and projected back. Router and shared experts see the input itself.
template <class Backend>
class mixture_ffn {
  using experts =
      std::conditional_t<Backend::on_device, device_experts<Backend>, host_experts<Backend>>;

 public:
  /// One scoring of a router: what goes in, what is chosen, and where the host reads it.
  struct scoring {
    typename stream_reader<Backend>::workspace reader;
    typename Backend::template buffer<float> normed, logits, gates;
    typename Backend::template buffer<expert_id> chosen;
    std::vector<expert_id> chosen_here;
    std::vector<float> gates_here;
  };
  /// What one computation needs beside weights; one serves all layers in turn.
  struct workspace {
    scoring now;
    scoring early;  ///< of the next layer's router, while this layer's choice is in use
    typename Backend::activations input, latent_input;
    typename Backend::template buffer<float> sum, latent, latent_sum;
    typename experts::workspace routed;
    typename gated_mlp<Backend>::workspace shared;
  };

  mixture_ffn(format::catalog const& catalog, decoder_config const& config, int layer)
      : config_{config},
        layer_{static_cast<std::uint32_t>(layer)},
        weights_{catalog},
        experts_{catalog, config, layer} {
    std::string const prefix = "blk." + std::to_string(layer) + ".";
    reader_ = stream_reader<Backend>::of_ffn(weights_, config, layer);
    router_ = weights_.add(prefix + "ffn_gate_inp.weight", config.experts, config.hidden);
    bias_ = weights_.add(prefix + "exp_probs_b.bias", 1, config.experts);
    if (config.latent_width > 0) {
      int const latent = config.latent_width;
      into_latent_ = weights_.add(prefix + "ffn_routed_down.weight", latent, config.hidden);
      latent_norm_ = weights_.add(prefix + "ffn_routed_norm.weight", 1, latent);
      out_of_latent_ = weights_.add(prefix + "ffn_routed_up.weight", config.hidden, latent);
    }
    if (config.shared_experts > 0) {
      shared_.emplace(
          weights_, config, prefix, "_shexp", config.shared_experts * config.expert_width);
    }
    check_experts(catalog);
  }

  [[nodiscard]] weight_group& weights() noexcept { return weights_; }

  /// Adds this layer to the residual stream. `next` is the following mixture layer, if any: its
  /// router is scored on this layer's input when the pass looks ahead and the router is held.
  void add_to(pass<Backend>& run,
              workspace& work,
              residual_stream<Backend>& stream,
              mixture_ffn const* next) const {
    auto const scope = weights_.enter(run.store, run.backend.stream());
    auto& backend = run.backend;
    route(run, scope, stream, 0, run.tokens, work.now);
    backend.prepare(work.input, work.now.normed.data(), run.tokens, config_.hidden);
    record_routing(run, work.now);
    if (run.look_ahead && next != nullptr && next->weights_.held()) {
      next->score_early(run, stream, work.early);
    }

    backend.resize(work.sum, stream.values());
    if (config_.latent_width > 0) {
      compute_in_latent(run, work, scope);
    } else {
      backend.zero(work.sum.data(), stream.values());
      add_experts(run, work, work.now.normed.data(), work.input, work.sum.data());
    }
    if (shared_) { shared_->add_to(run, work.shared, scope, work.input, work.sum.data()); }
    backend.add(work.sum.data(), stream.values(), stream.sum());
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
                        sized(0, config_.expert_width, config_.expert_io()) &&
                        sized(1, config_.expert_width, config_.expert_io()) &&
                        sized(2, config_.expert_io(), config_.expert_width);
      if (!fits) {
        throw format_error{catalog.files().front().string() + ": expert " + std::to_string(expert) +
                           " of layer " + std::to_string(layer_) + " is missing or is not " +
                           std::to_string(config_.expert_width) + " x " +
                           std::to_string(config_.expert_io()) +
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

  /// Reads tokens [first, first + tokens) of the stream, scores the router on them and chooses:
  /// chosen and gates [tokens, top_k]. The router's product keeps float32 activations in both
  /// numerics: a flipped near tie changes the result more than all other rounding.
  void route(pass<Backend>& run,
             weight_group::scope const& scope,
             residual_stream<Backend>& stream,
             std::size_t first,
             std::size_t tokens,
             scoring& out) const {
    auto& backend = run.backend;
    std::size_t const k = static_cast<std::size_t>(config_.top_k);
    backend.resize(out.normed, tokens * static_cast<std::size_t>(config_.hidden));
    backend.resize(out.logits, tokens * static_cast<std::size_t>(config_.experts));
    backend.resize(out.chosen, tokens * k);
    backend.resize(out.gates, tokens * k);
    reader_.read(run, out.reader, scope, stream, first, tokens, out.normed.data());
    backend.matmul_exact(scope[router_], out.normed.data(), tokens, out.logits.data());
    backend.route(
        router(), out.logits.data(), scope[bias_], tokens, out.chosen.data(), out.gates.data());
  }

  void record_routing(pass<Backend>& run, scoring& from) const {
    if (run.routing == nullptr) { return; }
    std::size_t const k = static_cast<std::size_t>(config_.top_k);
    auto const chosen = run.backend.read(from.chosen.data(), run.tokens * k, from.chosen_here);
    auto const gates = run.backend.read(from.gates.data(), run.tokens * k, from.gates_here);
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

  /// work.sum [tokens, hidden], overwritten: the routed experts in the latent space.
  void compute_in_latent(pass<Backend>& run,
                         workspace& work,
                         weight_group::scope const& scope) const {
    auto& backend = run.backend;
    std::size_t const width = static_cast<std::size_t>(config_.latent_width);
    backend.resize(work.latent, run.tokens * width);
    backend.resize(work.latent_sum, run.tokens * width);
    backend.matmul(scope[into_latent_], work.input, work.latent.data());
    backend.prepare(work.latent_input, work.latent.data(), run.tokens, width);
    backend.zero(work.latent_sum.data(), run.tokens * width);
    add_experts(run, work, work.latent.data(), work.latent_input, work.latent_sum.data());
    backend.rms_norm(work.latent_sum.data(),
                     scope[latent_norm_],
                     config_.norm_eps,
                     run.tokens,
                     work.latent_sum.data());
    backend.prepare(work.latent_input, work.latent_sum.data(), run.tokens, width);
    backend.matmul(scope[out_of_latent_], work.latent_input, work.sum.data());
  }

  /// sum += the routed experts' weighted outputs for x, of which `input` is the prepared form.
  void add_experts(pass<Backend>& run,
                   workspace& work,
                   [[maybe_unused]] float const* x,
                   typename Backend::activations const& input,
                   float* sum) const {
    auto& now = work.now;
    if constexpr (Backend::on_device) {
      experts_.add_to(run, work.routed, x, input, now.chosen.data(), now.gates.data(), sum);
    } else {
      experts_.add_to(run.backend,
                      run.store,
                      run.tokens,
                      work.routed,
                      input,
                      now.chosen.data(),
                      now.gates.data(),
                      sum);
    }
  }

  /// Tells the store which experts of this layer the previous mixture layer's input already points
  /// to.
  void score_early(pass<Backend> const& during,
                   residual_stream<Backend>& stream,
                   scoring& work) const {
    auto run = during;
    run.watcher = nullptr;  // what is read here is no part of the pass
    auto const scope = weights_.enter(run.store, run.backend.stream());
    route(run, scope, stream, run.tokens - 1, 1, work);
    std::size_t const k = static_cast<std::size_t>(config_.top_k);
    run.store.hint({.layer = layer_id{layer_},
                    .experts = run.backend.read(work.chosen.data(), k, work.chosen_here),
                    .scores = run.backend.read(work.gates.data(), k, work.gates_here)});
  }

  decoder_config config_;
  std::uint32_t layer_;
  weight_group weights_;
  stream_reader<Backend> reader_;
  std::size_t router_ = 0, bias_ = 0, into_latent_ = 0, latent_norm_ = 0, out_of_latent_ = 0;
  std::optional<gated_mlp<Backend>> shared_;
  experts experts_;
};

}  // namespace terrace::model
