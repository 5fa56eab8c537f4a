// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/error.hpp>
#include <terrace/core/kda_shape.hpp>
#include <terrace/format/catalog.hpp>
#include <terrace/model/config.hpp>
#include <terrace/model/hybrid_attention.hpp>

#include <string>

namespace terrace::model {

/// Kimi-Linear: delta attention with an unbounded decay, every fourth layer and the last latent
/// attention, on an ordinary residual stream; mixtures with a shared expert.
struct kimi_linear {
  static constexpr char const* architecture = "kimi-linear";
  template <class Backend>
  using attention = hybrid_attention<Backend>;

  [[nodiscard]] static decoder_config read_config(metadata const& meta) {
    auto config = read_hybrid(meta, architecture);
    config.kda.decay = kda_decay::softplus;
    return config;
  }

  template <class Backend>
  [[nodiscard]] static typename attention<Backend>::options attention_options(
      format::catalog const& /*catalog*/, decoder_config const& config, bool half_kv) {
    return unrotated_attention<Backend>(config, half_kv);
  }
};

}  // namespace terrace::model
