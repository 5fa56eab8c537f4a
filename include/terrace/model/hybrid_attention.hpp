// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/error.hpp>
#include <terrace/core/kda_shape.hpp>
#include <terrace/core/metadata.hpp>
#include <terrace/format/catalog.hpp>
#include <terrace/model/config.hpp>
#include <terrace/model/kda_attention.hpp>
#include <terrace/model/mla_attention.hpp>
#include <terrace/model/pass.hpp>
#include <terrace/model/residual_stream.hpp>
#include <terrace/model/rope_frequencies.hpp>
#include <terrace/model/weight_group.hpp>
#include <terrace/sequence/page_layout.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <variant>

namespace terrace::model {

/// Attention of a model whose layers are of two kinds: Kimi delta attention in most, latent
/// attention without rotation in the others.
template <class Backend>
class hybrid_attention {
  using recurrent = kda_attention<Backend>;
  using full = mla_attention<Backend>;

 public:
  /// What one computation needs beside weights and state; one serves all layers in turn.
  struct workspace {
    typename recurrent::workspace recurrent_work;
    typename full::workspace full_work;
  };

  using options = typename full::options;

  /// Errors: format_error when the tensors of the layer are those of the other kind.
  hybrid_attention(format::catalog const& catalog,
                   decoder_config const& config,
                   int layer,
                   options how)
      : layer_{make(catalog, config, layer, std::move(how))} {}

  [[nodiscard]] static sequence::page_layout state_page(decoder_config const& config,
                                                        int layer,
                                                        bool half_kv) noexcept {
    return config.is_recurrent(layer) ? recurrent::state_page(config)
                                      : full::state_page(config, layer, half_kv);
  }

  [[nodiscard]] weight_group& weights() noexcept {
    return std::visit([](auto& one) -> weight_group& { return one.weights(); }, layer_);
  }

  /// Adds this layer's attention to the residual stream.
  void add_to(pass<Backend>& run, workspace& work, residual_stream<Backend>& stream) const {
    if (auto const* const one = std::get_if<recurrent>(&layer_)) {
      one->add_to(run, work.recurrent_work, stream);
    } else {
      std::get<full>(layer_).add_to(run, work.full_work, stream);
    }
  }

 private:
  using either = std::variant<recurrent, full>;

  [[nodiscard]] static either make(format::catalog const& catalog,
                                   decoder_config const& config,
                                   int layer,
                                   options how) {
    bool const is_recurrent = config.is_recurrent(layer);
    std::string const prefix = "blk." + std::to_string(layer) + ".";
    // Every layer of either kind has exactly one of the two.
    bool const has_state = catalog.find(prefix + "ssm_conv1d_q.weight") != nullptr;
    bool const has_rows = catalog.find(prefix + "attn_kv_a_mqa.weight") != nullptr;
    if (has_state != is_recurrent || has_rows == is_recurrent) {
      throw format_error{catalog.files().front().string() + ": layer " + std::to_string(layer) +
                         " has the tensors of " +
                         (has_state && has_rows ? "both kinds of attention"
                          : has_state           ? "delta attention"
                          : has_rows            ? "full attention"
                                                : "neither kind of attention") +
                         " where the metadata says it is one of " +
                         (is_recurrent ? "delta" : "full") +
                         " attention; the configuration is of another model"};
    }
    if (is_recurrent) { return either{std::in_place_type<recurrent>, catalog, config, layer}; }
    return either{std::in_place_type<full>, catalog, config, layer, std::move(how)};
  }

  either layer_;
};

/// What Kimi K3 and Kimi-Linear share: kinds of layers, latent attention, delta attention and
/// mixture. Errors: format_error naming the key that is missing or out of range.
[[nodiscard]] inline decoder_config read_hybrid(metadata const& meta, std::string const& arch) {
  auto const key = [&](char const* name) { return arch + "." + name; };
  auto config = read_common(meta, arch);
  read_mixture(meta, arch, config);
  config.dense_width = meta.get_count(key("feed_forward_length"));
  config.q_lora = meta.try_count(key("attention.q_lora_rank")).value_or(0);
  config.kv_lora = meta.get_count(key("attention.kv_lora_rank"));
  config.rope_dim = meta.get_count(key("rope.dimension_count"));
  config.key_dim = meta.get_count(key("attention.key_length_mla"));
  config.value_dim = meta.get_count(key("attention.value_length_mla"));
  config.nope_dim = config.key_dim - config.rope_dim;
  config.kv_heads = 1;
  if (config.nope_dim <= 0) {
    throw format_error{meta.source() + ": keys of " + std::to_string(config.key_dim) +
                       " dimensions cannot share " + std::to_string(config.rope_dim) +
                       " of them; the file is damaged"};
  }
  auto const kinds = meta.try_integers(key("attention.head_count_kv"));
  if (!kinds || kinds->size() != static_cast<std::size_t>(config.layers)) {
    throw format_error{meta.source() + ": the key `" + key("attention.head_count_kv") + "` has " +
                       std::to_string(kinds ? kinds->size() : 0) + " numbers where " +
                       std::to_string(config.layers) +
                       " layers need one each, 0 for delta attention; the file is damaged"};
  }
  for (auto const heads : *kinds) { config.recurrent.push_back(heads == 0); }
  config.kda = {.heads = static_cast<std::size_t>(config.heads),
                .dim = static_cast<std::size_t>(meta.get_count(key("kda.head_dim"))),
                .taps = static_cast<std::size_t>(meta.get_count(key("ssm.conv_kernel")))};
  if (config.kda.dim > 4096 || config.kda.dim % 16 != 0 || config.kda.taps < 2 ||
      config.kda.taps > 8) {
    throw not_supported{meta.source() + ": delta attention of heads of " +
                        std::to_string(config.kda.dim) + " with " +
                        std::to_string(config.kda.taps) +
                        " taps is not computed; heads are multiples of 16 up to 4096 and taps 2 "
                        "to 8"};
  }
  return config;
}

/// Latent attention of these models: nothing is rotated, and no factor on the scores.
template <class Backend>
[[nodiscard]] typename hybrid_attention<Backend>::options unrotated_attention(
    decoder_config const& config, bool half_kv) {
  // The two inner norms keep the default of their class in the published implementation.
  return {.frequencies = {},
          .score_scale = 1 / std::sqrt(static_cast<double>(config.key_dim)),
          .inner_eps = 1e-6F,
          .output_gate = config.full_gates,
          .half_kv = half_kv};
}

}  // namespace terrace::model
