// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/rope_shape.hpp>
#include <terrace/format/catalog.hpp>
#include <terrace/model/config.hpp>
#include <terrace/model/decoder.hpp>
#include <terrace/model/gqa_attention.hpp>
#include <terrace/model/read_tensor.hpp>
#include <terrace/model/rope_frequencies.hpp>

#include <cmath>
#include <string>

namespace terrace::model {

/// Llama 3.x and what shares its shape (SmolLM2): grouped-query attention, dense feed-forward.
///
/// GGUF files hold the rows of q and k permuted for interleaved rotation and may carry the
/// Llama 3.1 frequency divisors as a tensor; safetensors files hold them for half-split rotation
/// and carry the scaling in the config.
struct llama {
  static constexpr char const* architecture = "llama";
  template <class Backend>
  using attention = gqa_attention<Backend>;

  [[nodiscard]] static decoder_config read_config(metadata const& meta) {
    auto config = read_common(meta, architecture);
    read_gqa(meta, architecture, config);
    config.dense_width = meta.get_count("llama.feed_forward_length");
    config.scaling = read_scaling(meta, architecture);
    if (meta.try_unsigned("llama.expert_count").value_or(0) > 0) {
      throw not_supported{meta.source() +
                          ": a llama file with experts (Mixtral) is not a family terrace runs"};
    }
    return config;
  }

  template <class Backend>
  [[nodiscard]] static typename attention<Backend>::options attention_options(
      format::catalog const& catalog, decoder_config const& config, bool half_kv) {
    auto frequencies = make_frequencies(config.rope_dim, config.rope_base, config.scaling);
    apply_divisors(catalog, frequencies);
    return {.pairing = catalog.kind() == format::container::gguf ? rope_pairing::interleaved
                                                                 : rope_pairing::half_split,
            .frequencies = std::move(frequencies),
            .row_norms = false,
            .half_kv = half_kv};
  }

 private:
  static void apply_divisors(format::catalog const& catalog, rope_frequencies& frequencies) {
    if (catalog.find("rope_freqs.weight") == nullptr) { return; }
    auto const divisors = read_tensor(catalog, "rope_freqs.weight");
    if (divisors.size() != frequencies.per_pair.size()) {
      throw format_error{catalog.files().front().string() + ": tensor `rope_freqs.weight` has " +
                         std::to_string(divisors.size()) + " values where the rotation has " +
                         std::to_string(frequencies.per_pair.size()) +
                         " pairs; the file is damaged"};
    }
    for (std::size_t i = 0; i < divisors.size(); ++i) {
      if (!(divisors[i] > 0) || !std::isfinite(divisors[i])) {
        throw format_error{catalog.files().front().string() +
                           ": tensor `rope_freqs.weight` holds " + std::to_string(divisors[i]) +
                           " at " + std::to_string(i) +
                           "; divisors must be positive, the file is damaged"};
      }
      frequencies.per_pair[i] /= divisors[i];
    }
  }
};

}  // namespace terrace::model
