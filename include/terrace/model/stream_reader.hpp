// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/bank_score.hpp>
#include <terrace/model/config.hpp>
#include <terrace/model/pass.hpp>
#include <terrace/model/residual_stream.hpp>
#include <terrace/model/weight_group.hpp>

#include <cstddef>
#include <string>

namespace terrace::model {

/// What one layer reads of the residual stream: the norm of the live sum or, once the bank holds
/// something, of a mixture of the stored sums and the live one, weighed by how well each scores.
///
/// The scoring vector is one tensor in GGUF (`..._res_score`) and the product of two in safetensors
/// (`..._res_norm` and `..._res_proj`).
template <class Backend>
class stream_reader {
 public:
  /// What one reading needs beside weights; one serves all layers in turn.
  struct workspace {
    typename Backend::template buffer<float> mixed, shares;
  };

  stream_reader() = default;
  /// Of attention, whose layer may store the live sum once it has read.
  [[nodiscard]] static stream_reader of_attention(weight_group& weights,
                                                  decoder_config const& config,
                                                  int layer) {
    stream_reader one{weights, config, layer_name(layer, "attn"), layer > 0};
    one.stores_ = config.stores_before(layer);
    return one;
  }
  [[nodiscard]] static stream_reader of_ffn(weight_group& weights,
                                            decoder_config const& config,
                                            int layer) {
    return {weights, config, layer_name(layer, "ffn"), true};
  }
  [[nodiscard]] static stream_reader of_head(weight_group& weights, decoder_config const& config) {
    return {weights, config, "output", true};
  }

  /// normed [tokens, hidden] of tokens [first, first + tokens) of the stream.
  void read(pass<Backend>& run,
            workspace& work,
            weight_group::scope const& scope,
            residual_stream<Backend>& from,
            std::size_t first,
            std::size_t tokens,
            float* normed) const {
    auto& backend = run.backend;
    float const* x = from.sum() + first * hidden_;
    if (mixes_) {
      auto const candidates = from.candidates(first);
      backend.resize(work.mixed, tokens * hidden_);
      backend.resize(work.shares, tokens * candidates.size());
      bank_score score{.weight = scope[score_]};
      if (is_product_) { score.factor = scope[factor_]; }
      backend.mix_bank(candidates, score, eps_, tokens, work.shares.data(), work.mixed.data());
      run.show("mixture", work.shares.data(), tokens, candidates.size());
      x = work.mixed.data();
    }
    backend.rms_norm(x, scope[norm_], eps_, tokens, normed);
    if (stores_) { from.store(backend); }
  }

 private:
  /// `is_late`: whether the bank, if the model has one, holds something by then.
  stream_reader(weight_group& weights,
                decoder_config const& config,
                std::string const& prefix,
                bool is_late)
      : hidden_{static_cast<std::size_t>(config.hidden)},
        eps_{config.norm_eps},
        mixes_{is_late && config.bank_block > 0} {
    norm_ = weights.add(prefix + "_norm.weight", 1, config.hidden);
    if (!mixes_) { return; }
    is_product_ = !weights.has(prefix + "_res_score.weight");
    if (is_product_) {
      score_ = weights.add(prefix + "_res_proj.weight", 1, config.hidden);
      factor_ = weights.add(prefix + "_res_norm.weight", 1, config.hidden);
    } else {
      score_ = weights.add(prefix + "_res_score.weight", 1, config.hidden);
    }
  }
  [[nodiscard]] static std::string layer_name(int layer, char const* part) {
    return "blk." + std::to_string(layer) + "." + part;
  }

  std::size_t hidden_ = 0;
  float eps_ = 0;
  bool mixes_ = false;
  bool stores_ = false;
  bool is_product_ = false;  ///< the score is the product of two vectors
  std::size_t norm_ = 0, score_ = 0, factor_ = 0;
};

}  // namespace terrace::model
