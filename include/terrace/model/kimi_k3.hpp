// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/error.hpp>
#include <terrace/core/gated_activation.hpp>
#include <terrace/core/kda_shape.hpp>
#include <terrace/format/catalog.hpp>
#include <terrace/model/config.hpp>
#include <terrace/model/hybrid_attention.hpp>

#include <string>

namespace terrace::model {

/// Kimi K3: delta attention with a bounded decay, every fourth layer and the last latent attention
/// with an output gate; a residual bank that every layer reads a mixture of; routed experts in a
/// latent space; SiTU.
struct kimi_k3 {
  static constexpr char const* architecture = "kimi-k3";
  template <class Backend>
  using attention = hybrid_attention<Backend>;

  [[nodiscard]] static decoder_config read_config(metadata const& meta) {
    auto config = read_hybrid(meta, architecture);
    config.full_gates = true;
    config.latent_width = meta.get_count("kimi-k3.expert_latent_length");
    config.bank_block = meta.get_count("kimi-k3.attn_res.block_size");
    config.kda.decay = kda_decay::bounded;
    config.kda.bound = static_cast<float>(meta.get_number("kimi-k3.kda.gate_lower_bound"));
    config.activation = {
        .type = gated_activation::kind::situ,
        .beta = static_cast<float>(meta.get_number("kimi-k3.activation.situ_beta")),
        .linear_beta = static_cast<float>(meta.get_number("kimi-k3.activation.situ_linear_beta"))};
    auto const& activation = config.activation;
    if (!(config.kda.bound < 0 && config.kda.bound > -1e3F) || !(activation.beta > 0) ||
        !(activation.linear_beta > 0)) {
      throw format_error{meta.source() + ": the decay bound " + std::to_string(config.kda.bound) +
                         " or the saturations " + std::to_string(activation.beta) + " and " +
                         std::to_string(activation.linear_beta) +
                         " of SiTU are no sensible numbers; the file is damaged"};
    }
    return config;
  }

  template <class Backend>
  [[nodiscard]] static typename attention<Backend>::options attention_options(
      format::catalog const& /*catalog*/, decoder_config const& config, bool half_kv) {
    return unrotated_attention<Backend>(config, half_kv);
  }
};

}  // namespace terrace::model
