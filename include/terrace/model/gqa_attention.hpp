// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/attention_shape.hpp>
#include <terrace/core/rope_shape.hpp>
#include <terrace/format/catalog.hpp>
#include <terrace/model/config.hpp>
#include <terrace/model/pass.hpp>
#include <terrace/model/residual_stream.hpp>
#include <terrace/model/rope_frequencies.hpp>
#include <terrace/model/stream_reader.hpp>
#include <terrace/model/weight_group.hpp>
#include <terrace/sequence/page_layout.hpp>
#include <terrace/sequence/paged_kv.hpp>

#include <cmath>
#include <cstddef>
#include <string>

namespace terrace::model {

/// Grouped-query attention with rotary positions; optionally RMS norms over whole q and k rows
/// (MiniMax-M2).
///
/// Shapes: normed x [tokens, hidden] -> y [tokens, hidden], row-major float32, overwritten.
template <class Backend>
class gqa_attention {
 public:
  /// What one computation needs beside weights and state; one serves all layers in turn.
  struct workspace {
    typename stream_reader<Backend>::workspace reader;
    typename Backend::activations input;
    typename Backend::template buffer<float> normed, q, k, v, mixed, projected;
  };

  struct options {
    rope_pairing pairing = rope_pairing::half_split;
    rope_frequencies frequencies;
    bool row_norms = false;  ///< one norm over all heads of q and one over all heads of k
    bool half_kv = false;
  };

  gqa_attention(format::catalog const& catalog,
                decoder_config const& config,
                int layer,
                options how)
      : config_{config},
        how_{std::move(how)},
        layer_{static_cast<std::size_t>(layer)},
        weights_{catalog} {
    std::string const prefix = "blk." + std::to_string(layer) + ".";
    q_rows_ = config.heads * config.key_dim;
    k_rows_ = config.kv_heads * config.key_dim;
    v_rows_ = config.kv_heads * config.value_dim;
    reader_ = stream_reader<Backend>::of_attention(weights_, config, layer);
    q_ = weights_.add(prefix + "attn_q.weight", q_rows_, config.hidden);
    k_ = weights_.add(prefix + "attn_k.weight", k_rows_, config.hidden);
    v_ = weights_.add(prefix + "attn_v.weight", v_rows_, config.hidden);
    out_ =
        weights_.add(prefix + "attn_output.weight", config.hidden, config.heads * config.value_dim);
    if (how_.row_norms) {
      q_norm_ = weights_.add(prefix + "attn_q_norm.weight", 1, q_rows_);
      k_norm_ = weights_.add(prefix + "attn_k_norm.weight", 1, k_rows_);
    }
  }

  /// How any layer keeps its keys and values.
  [[nodiscard]] static sequence::page_layout state_page(decoder_config const& config,
                                                        int /*layer*/,
                                                        bool half_kv) noexcept {
    return sequence::paged_kv_page(config.kv_heads, config.key_dim, config.value_dim, half_kv);
  }

  [[nodiscard]] weight_group& weights() noexcept { return weights_; }

  /// Adds this layer's attention to the residual stream.
  void add_to(pass<Backend>& run, workspace& work, residual_stream<Backend>& stream) const {
    auto const scope = weights_.enter(run.store, run.backend.stream());
    auto& backend = run.backend;
    std::size_t const tokens = run.tokens;
    auto const rows = [&](int count) { return tokens * static_cast<std::size_t>(count); };
    backend.resize(work.normed, rows(config_.hidden));
    backend.resize(work.q, rows(q_rows_));
    backend.resize(work.k, rows(k_rows_));
    backend.resize(work.v, rows(v_rows_));
    backend.resize(work.mixed, rows(config_.heads * config_.value_dim));
    backend.resize(work.projected, rows(config_.hidden));

    reader_.read(run, work.reader, scope, stream, 0, tokens, work.normed.data());
    backend.prepare(work.input, work.normed.data(), tokens, config_.hidden);
    backend.matmul(scope[q_], work.input, work.q.data());
    backend.matmul(scope[k_], work.input, work.k.data());
    backend.matmul(scope[v_], work.input, work.v.data());
    if (how_.row_norms) {
      backend.rms_norm(work.q.data(), scope[q_norm_], config_.norm_eps, tokens, work.q.data());
      backend.rms_norm(work.k.data(), scope[k_norm_], config_.norm_eps, tokens, work.k.data());
    }
    rotate(run, work.q.data(), config_.heads);
    rotate(run, work.k.data(), config_.kv_heads);

    auto const shape = shape_of(run);
    kv_pages const cache{
        sequence::paged_kv_layout(shape.kv_heads, shape.d_k, shape.d_v, how_.half_kv),
        run.pages.layer(layer_)};
    backend.store_kv(shape, work.k.data(), work.v.data(), cache);
    backend.attention(shape, work.q.data(), cache, work.mixed.data());
    backend.prepare(work.input, work.mixed.data(), tokens, config_.heads * config_.value_dim);
    backend.matmul(scope[out_], work.input, work.projected.data());
    backend.add(work.projected.data(), stream.values(), stream.sum());
  }

 private:
  void rotate(pass<Backend>& run, float* values, int heads) const {
    run.backend.rope(values,
                     {.tokens = run.tokens,
                      .heads = static_cast<std::size_t>(heads),
                      .head_stride = static_cast<std::size_t>(config_.key_dim),
                      .n_rot = static_cast<std::size_t>(config_.rope_dim),
                      .pairing = how_.pairing},
                     run.angles);
  }
  [[nodiscard]] attention_shape shape_of(pass<Backend> const& run) const {
    return {.tokens = run.tokens,
            .heads = static_cast<std::size_t>(config_.heads),
            .kv_heads = static_cast<std::size_t>(config_.kv_heads),
            .d_k = static_cast<std::size_t>(config_.key_dim),
            .d_v = static_cast<std::size_t>(config_.value_dim),
            .first_position = run.first_position,
            .scale = 1.0F / std::sqrt(static_cast<float>(config_.key_dim))};
  }

  decoder_config config_;
  options how_;
  std::size_t layer_;
  weight_group weights_;
  stream_reader<Backend> reader_;
  int q_rows_ = 0, k_rows_ = 0, v_rows_ = 0;
  std::size_t q_ = 0, k_ = 0, v_ = 0, out_ = 0, q_norm_ = 0, k_norm_ = 0;
};

}  // namespace terrace::model
