// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/gated_activation.hpp>
#include <terrace/format/catalog.hpp>
#include <terrace/model/config.hpp>
#include <terrace/model/pass.hpp>
#include <terrace/model/residual_stream.hpp>
#include <terrace/model/stream_reader.hpp>
#include <terrace/model/weight_group.hpp>

#include <cstddef>
#include <string>

namespace terrace::model {

/// down(activation(gate x, up x)) with its three matrices in a weight group of the caller.
template <class Backend>
class gated_mlp {
 public:
  /// What one computation needs beside weights; one serves any number of layers in turn.
  struct workspace {
    typename Backend::activations inner;
    typename Backend::template buffer<float> gate, up, result;
  };

  gated_mlp() = default;
  /// `suffix` distinguishes the plain layer ("") from shared experts ("_shexp").
  gated_mlp(weight_group& weights,
            decoder_config const& config,
            std::string const& prefix,
            std::string const& suffix,
            int width)
      : activation_{config.activation}, hidden_{config.hidden}, width_{width} {
    gate_ = weights.add(prefix + "ffn_gate" + suffix + ".weight", width, hidden_);
    up_ = weights.add(prefix + "ffn_up" + suffix + ".weight", width, hidden_);
    down_ = weights.add(prefix + "ffn_down" + suffix + ".weight", hidden_, width);
  }

  /// Adds the result for `input` [tokens, hidden] to `sum` [tokens, hidden].
  void add_to(pass<Backend>& run,
              workspace& work,
              weight_group::scope const& scope,
              typename Backend::activations const& input,
              float* sum) const {
    auto& backend = run.backend;
    std::size_t const inner = run.tokens * static_cast<std::size_t>(width_);
    std::size_t const outer = run.tokens * static_cast<std::size_t>(hidden_);
    backend.resize(work.gate, inner);
    backend.resize(work.up, inner);
    backend.resize(work.result, outer);
    backend.matmul(scope[gate_], input, work.gate.data());
    backend.matmul(scope[up_], input, work.up.data());
    backend.activate(activation_, work.gate.data(), work.up.data(), inner, work.gate.data());
    backend.prepare(work.inner, work.gate.data(), run.tokens, width_);
    backend.matmul(scope[down_], work.inner, work.result.data());
    backend.add(work.result.data(), outer, sum);
  }

 private:
  gated_activation activation_;
  int hidden_ = 0, width_ = 0;
  std::size_t gate_ = 0, up_ = 0, down_ = 0;
};

/// A feed-forward layer without experts.
template <class Backend>
class dense_ffn {
 public:
  struct workspace {
    typename stream_reader<Backend>::workspace reader;
    typename Backend::activations input;
    typename Backend::template buffer<float> normed;
    typename gated_mlp<Backend>::workspace mlp;
  };

  dense_ffn(format::catalog const& catalog, decoder_config const& config, int layer)
      : config_{config}, weights_{catalog} {
    std::string const prefix = "blk." + std::to_string(layer) + ".";
    reader_ = stream_reader<Backend>::of_ffn(weights_, config, layer);
    mlp_ = {weights_, config, prefix, "", config.dense_width};
  }

  [[nodiscard]] weight_group& weights() noexcept { return weights_; }

  /// Adds this layer to the residual stream.
  void add_to(pass<Backend>& run, workspace& work, residual_stream<Backend>& stream) const {
    auto const scope = weights_.enter(run.store, run.backend.stream());
    auto& backend = run.backend;
    backend.resize(work.normed, run.tokens * static_cast<std::size_t>(config_.hidden));
    reader_.read(run, work.reader, scope, stream, 0, run.tokens, work.normed.data());
    backend.prepare(work.input, work.normed.data(), run.tokens, config_.hidden);
    mlp_.add_to(run, work.mlp, scope, work.input, stream.sum());
  }

 private:
  decoder_config config_;
  weight_group weights_;
  stream_reader<Backend> reader_;
  gated_mlp<Backend> mlp_;
};

}  // namespace terrace::model
