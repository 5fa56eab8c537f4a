// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/attention_shape.hpp>
#include <terrace/core/head_product.hpp>
#include <terrace/core/rope_shape.hpp>
#include <terrace/format/catalog.hpp>
#include <terrace/model/config.hpp>
#include <terrace/model/pass.hpp>
#include <terrace/model/residual_stream.hpp>
#include <terrace/model/rope_frequencies.hpp>
#include <terrace/model/stream_reader.hpp>
#include <terrace/model/weight_group.hpp>
#include <terrace/sequence/mla_rows.hpp>
#include <terrace/sequence/page_layout.hpp>

#include <cmath>
#include <cstddef>
#include <string>

namespace terrace::model {

/// Multi-head latent attention in its absorbed form: queries are carried into the latent space by
/// the key factor, so that one cached row per token serves all heads, and the mixed latent is
/// carried out by the value factor.
///
/// The two factors are separate tensors in GGUF (attn_k_b, already transposed, and attn_v_b) and
/// one interleaved tensor in safetensors (attn_kv_b: per head the key rows, then the value rows).
/// They are read as float32 products in both numerics, since their inputs are short head slices.
/// Source: DeepSeek-V2 report, section 2.1; row orders as in models of the DeepSeek-V3 shape.
template <class Backend>
class mla_attention {
 public:
  /// What one computation needs beside weights and state; one serves all layers in turn.
  struct workspace {
    typename stream_reader<Backend>::workspace reader;
    typename Backend::activations input;
    typename Backend::template buffer<float> normed, compressed, queries, rows, gate, absorbed,
        latent, mixed, projected;
  };

  struct options {
    rope_frequencies frequencies;  ///< none: nothing is rotated, though keys keep that part
    double score_scale = 1;
    float inner_eps = 1e-5F;   ///< of the two norms inside
    bool output_gate = false;  ///< heads are multiplied by sigmoid of a projection of the input
    bool half_kv = false;
  };

  mla_attention(format::catalog const& catalog,
                decoder_config const& config,
                int layer,
                options how)
      : config_{config},
        how_{std::move(how)},
        layer_{static_cast<std::size_t>(layer)},
        weights_{catalog} {
    std::string const prefix = "blk." + std::to_string(layer) + ".";
    int const query_rows = config.heads * (config.nope_dim + config.rope_dim);
    int const row = config.kv_lora + config.rope_dim;
    reader_ = stream_reader<Backend>::of_attention(weights_, config, layer);
    if (config.q_lora > 0) {
      q_a_ = weights_.add(prefix + "attn_q_a.weight", config.q_lora, config.hidden);
      q_a_norm_ = weights_.add(prefix + "attn_q_a_norm.weight", 1, config.q_lora);
      q_ = weights_.add(prefix + "attn_q_b.weight", query_rows, config.q_lora);
    } else {
      q_ = weights_.add(prefix + "attn_q.weight", query_rows, config.hidden);
    }
    kv_a_ = weights_.add(prefix + "attn_kv_a_mqa.weight", row, config.hidden);
    kv_a_norm_ = weights_.add(prefix + "attn_kv_a_norm.weight", 1, config.kv_lora);
    split_ = weights_.has(prefix + "attn_k_b.weight");
    if (split_) {
      k_b_ =
          weights_.add(prefix + "attn_k_b.weight", config.heads * config.kv_lora, config.nope_dim);
      v_b_ =
          weights_.add(prefix + "attn_v_b.weight", config.heads * config.value_dim, config.kv_lora);
    } else {
      kv_b_ = weights_.add(prefix + "attn_kv_b.weight",
                           config.heads * (config.nope_dim + config.value_dim),
                           config.kv_lora);
    }
    if (how_.output_gate) {
      gate_ =
          weights_.add(prefix + "attn_gate.weight", config.heads * config.value_dim, config.hidden);
    }
    out_ =
        weights_.add(prefix + "attn_output.weight", config.hidden, config.heads * config.value_dim);
  }

  /// How any layer keeps its rows.
  [[nodiscard]] static sequence::page_layout state_page(decoder_config const& config,
                                                        int /*layer*/,
                                                        bool half_kv) noexcept {
    return sequence::mla_row_page(config.kv_lora, config.rope_dim, half_kv);
  }

  [[nodiscard]] weight_group& weights() noexcept { return weights_; }

  /// Adds this layer's attention to the residual stream.
  void add_to(pass<Backend>& run, workspace& work, residual_stream<Backend>& stream) const {
    auto const scope = weights_.enter(run.store, run.backend.stream());
    auto& backend = run.backend;
    std::size_t const tokens = run.tokens;
    int const row = config_.kv_lora + config_.rope_dim;
    backend.resize(work.normed, tokens * config_.hidden);
    reader_.read(run, work.reader, scope, stream, 0, tokens, work.normed.data());
    backend.prepare(work.input, work.normed.data(), tokens, config_.hidden);

    backend.resize(work.rows, tokens * row);
    backend.matmul(scope[kv_a_], work.input, work.rows.data());
    if (how_.output_gate) {
      backend.resize(work.gate, tokens * config_.heads * config_.value_dim);
      backend.matmul(scope[gate_], work.input, work.gate.data());
    }
    project_queries(run, work, scope);

    norm_latents(run, work, scope);
    if (!how_.frequencies.per_pair.empty()) {
      rotate(run, work.rows.data(), 1, row, config_.kv_lora);
      rotate(run,
             work.queries.data(),
             config_.heads,
             config_.nope_dim + config_.rope_dim,
             config_.nope_dim);
    }

    attention_shape const shape{.tokens = tokens,
                                .heads = static_cast<std::size_t>(config_.heads),
                                .kv_heads = 1,
                                .d_k = static_cast<std::size_t>(row),
                                .d_v = static_cast<std::size_t>(config_.kv_lora),
                                .first_position = run.first_position,
                                .scale = static_cast<float>(how_.score_scale)};
    kv_pages const cache{sequence::mla_row_layout(config_.kv_lora, config_.rope_dim, how_.half_kv),
                         run.pages.layer(layer_)};
    backend.store_kv(shape, work.rows.data(), nullptr, cache);

    absorb_queries(run, work, scope);
    backend.resize(work.latent, tokens * config_.heads * config_.kv_lora);
    backend.attention(shape, work.absorbed.data(), cache, work.latent.data());
    backend.resize(work.mixed, tokens * config_.heads * config_.value_dim);
    carry_out(run, work, scope);
    if (how_.output_gate) {
      backend.multiply_sigmoid(
          work.gate.data(), tokens * config_.heads * config_.value_dim, work.mixed.data());
    }

    backend.prepare(work.input, work.mixed.data(), tokens, config_.heads * config_.value_dim);
    backend.resize(work.projected, tokens * config_.hidden);
    backend.matmul(scope[out_], work.input, work.projected.data());
    backend.add(work.projected.data(), stream.values(), stream.sum());
  }

 private:
  /// work.queries [tokens, heads, nope + rope]
  void project_queries(pass<Backend>& run,
                       workspace& work,
                       weight_group::scope const& scope) const {
    auto& backend = run.backend;
    int const width = config_.heads * (config_.nope_dim + config_.rope_dim);
    backend.resize(work.queries, run.tokens * width);
    if (config_.q_lora == 0) {
      backend.matmul(scope[q_], work.input, work.queries.data());
      return;
    }
    backend.resize(work.compressed, run.tokens * config_.q_lora);
    backend.matmul(scope[q_a_], work.input, work.compressed.data());
    backend.rms_norm(work.compressed.data(),
                     scope[q_a_norm_],
                     how_.inner_eps,
                     run.tokens,
                     work.compressed.data());
    backend.prepare(work.input, work.compressed.data(), run.tokens, config_.q_lora);
    backend.matmul(scope[q_], work.input, work.queries.data());
  }

  /// The first kv_lora values of each row of work.rows; the shared key part after them has no norm.
  void norm_latents(pass<Backend>& run, workspace& work, weight_group::scope const& scope) const {
    run.backend.rms_norm_part(work.rows.data(),
                              static_cast<std::size_t>(config_.kv_lora + config_.rope_dim),
                              scope[kv_a_norm_],
                              how_.inner_eps,
                              run.tokens);
  }

  /// work.absorbed [tokens, heads, latent + rope]: the key factor applied to the unrotated part,
  /// the rotated part copied.
  void absorb_queries(pass<Backend>& run, workspace& work, weight_group::scope const& scope) const {
    std::size_t const heads = static_cast<std::size_t>(config_.heads);
    std::size_t const from = static_cast<std::size_t>(config_.nope_dim + config_.rope_dim);
    std::size_t const to = static_cast<std::size_t>(config_.kv_lora + config_.rope_dim);
    run.backend.resize(work.absorbed, run.tokens * heads * to);
    std::uint64_t const latent = static_cast<std::uint64_t>(config_.kv_lora);
    run.backend.head_products(
        {.factors = split_ ? scope[k_b_] : scope[kv_b_],
         .heads = heads,
         .row_stride = split_ ? latent : rows_a_head(),
         .rows = split_ ? latent : static_cast<std::uint64_t>(config_.nope_dim),
         .transposed = !split_,
         .in = work.queries.data(),
         .in_token_stride = heads * from,
         .in_head_stride = from,
         .out = work.absorbed.data(),
         .out_token_stride = heads * to,
         .out_head_stride = to},
        run.tokens);
    run.backend.copy_columns(work.queries.data() + config_.nope_dim,
                             from,
                             work.absorbed.data() + config_.kv_lora,
                             to,
                             static_cast<std::size_t>(config_.rope_dim),
                             run.tokens * heads);
  }

  /// work.mixed [tokens, heads, value_dim]: the value factor applied to each head's mixed latent.
  void carry_out(pass<Backend>& run, workspace& work, weight_group::scope const& scope) const {
    std::size_t const heads = static_cast<std::size_t>(config_.heads);
    std::size_t const from = static_cast<std::size_t>(config_.kv_lora);
    std::size_t const to = static_cast<std::size_t>(config_.value_dim);
    run.backend.head_products(
        {.factors = split_ ? scope[v_b_] : scope[kv_b_],
         .heads = heads,
         .first_row = split_ ? 0 : static_cast<std::uint64_t>(config_.nope_dim),
         .row_stride = split_ ? to : rows_a_head(),
         .rows = to,
         .in = work.latent.data(),
         .in_token_stride = heads * from,
         .in_head_stride = from,
         .out = work.mixed.data(),
         .out_token_stride = heads * to,
         .out_head_stride = to},
        run.tokens);
  }

  [[nodiscard]] std::uint64_t rows_a_head() const noexcept {
    return static_cast<std::uint64_t>(config_.nope_dim + config_.value_dim);
  }

  void rotate(pass<Backend>& run, float* values, int heads, int head_stride, int first) const {
    run.backend.rope(values,
                     {.tokens = run.tokens,
                      .heads = static_cast<std::size_t>(heads),
                      .head_stride = static_cast<std::size_t>(head_stride),
                      .first_dim = static_cast<std::size_t>(first),
                      .n_rot = static_cast<std::size_t>(config_.rope_dim),
                      .pairing = rope_pairing::interleaved},
                     run.angles);
  }

  decoder_config config_;
  options how_;
  std::size_t layer_;
  weight_group weights_;
  stream_reader<Backend> reader_;
  bool split_ = false;
  std::size_t q_a_ = 0, q_a_norm_ = 0, q_ = 0, kv_a_ = 0, kv_a_norm_ = 0, k_b_ = 0, v_b_ = 0,
              kv_b_ = 0, gate_ = 0, out_ = 0;
};

}  // namespace terrace::model
