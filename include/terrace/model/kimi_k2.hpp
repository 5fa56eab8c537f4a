// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/format/catalog.hpp>
#include <terrace/model/config.hpp>
#include <terrace/model/decoder.hpp>
#include <terrace/model/mla_attention.hpp>
#include <terrace/model/rope_frequencies.hpp>

#include <cmath>
#include <string>

namespace terrace::model {

/// Kimi K2, K2-Thinking, K2.5 and later (the DeepSeek-V3 shape): latent attention with YaRN,
/// leading dense layers, then mixtures with a shared expert and a sigmoid router whose bias only
/// chooses.
///
/// All norms use the file's epsilon, the two small ones inside attention included, as llama.cpp
/// does.
struct kimi_k2 {
  static constexpr char const* architecture = "deepseek2";
  template <class Backend>
  using attention = mla_attention<Backend>;

  [[nodiscard]] static decoder_config read_config(metadata const& meta) {
    auto config = read_common(meta, architecture);
    read_mixture(meta, architecture, config);
    config.dense_width = meta.get_count("deepseek2.feed_forward_length");
    config.q_lora = meta.try_count("deepseek2.attention.q_lora_rank").value_or(0);
    config.kv_lora = meta.get_count("deepseek2.attention.kv_lora_rank");
    config.rope_dim = meta.get_count("deepseek2.rope.dimension_count");
    config.key_dim = meta.get_count("deepseek2.attention.key_length_mla");
    config.value_dim = meta.get_count("deepseek2.attention.value_length_mla");
    config.nope_dim = config.key_dim - config.rope_dim;
    config.kv_heads = 1;
    if (config.nope_dim <= 0 || config.rope_dim % 2 != 0) {
      throw format_error{meta.source() + ": heads of " + std::to_string(config.key_dim) +
                         " dimensions cannot have " + std::to_string(config.rope_dim) +
                         " rotated ones; the file is damaged"};
    }
    config.scaling = read_scaling(meta, architecture);
    return config;
  }

  template <class Backend>
  [[nodiscard]] static typename attention<Backend>::options attention_options(
      format::catalog const& /*catalog*/, decoder_config const& config, bool half_kv) {
    double const magnitude = yarn_magnitude(config.scaling);
    return {.frequencies = make_frequencies(config.rope_dim, config.rope_base, config.scaling),
            .score_scale = magnitude * magnitude / std::sqrt(static_cast<double>(config.key_dim)),
            .inner_eps = config.norm_eps,
            .output_gate = false,
            .half_kv = half_kv};
  }
};

}  // namespace terrace::model
