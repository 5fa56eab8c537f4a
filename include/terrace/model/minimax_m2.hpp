// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/rope_shape.hpp>
#include <terrace/format/catalog.hpp>
#include <terrace/model/config.hpp>
#include <terrace/model/decoder.hpp>
#include <terrace/model/gqa_attention.hpp>
#include <terrace/model/rope_frequencies.hpp>

#include <string>

namespace terrace::model {

/// MiniMax-M2, M2.1, M2.5 and M2.7: grouped-query attention with q and k norms over whole rows,
/// rotation of the first part of each head, every layer a mixture, no shared expert.
struct minimax_m2 {
  static constexpr char const* architecture = "minimax-m2";
  template <class Backend>
  using attention = gqa_attention<Backend>;

  [[nodiscard]] static decoder_config read_config(metadata const& meta) {
    auto config = read_common(meta, architecture);
    read_gqa(meta, architecture, config);
    read_mixture(meta, architecture, config);
    config.leading_dense = 0;
    config.shared_experts = 0;
    config.normalise_weights = true;
    config.scaling = read_scaling(meta, architecture);
    return config;
  }

  template <class Backend>
  [[nodiscard]] static typename attention<Backend>::options attention_options(
      format::catalog const& /*catalog*/, decoder_config const& config, bool half_kv) {
    return {.pairing = rope_pairing::half_split,
            .frequencies = make_frequencies(config.rope_dim, config.rope_base, config.scaling),
            .row_norms = true,
            .half_kv = half_kv};
  }
};

}  // namespace terrace::model
