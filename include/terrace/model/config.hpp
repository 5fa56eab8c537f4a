// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/error.hpp>
#include <terrace/core/gated_activation.hpp>
#include <terrace/core/kda_shape.hpp>
#include <terrace/core/metadata.hpp>

#include <algorithm>
#include <string>
#include <vector>

namespace terrace::model {

/// How rotation frequencies are stretched beyond the trained context.
struct rope_scaling {
  enum class kind { none, llama3, yarn };
  kind type = kind::none;
  double factor = 1;
  double original_context = 0;
  double low_freq_factor = 1;
  double high_freq_factor = 4;
  double beta_fast = 32;
  double beta_slow = 1;
  double log_multiplier =
      0;  ///< 0.1 * mscale_all_dim; the magnitude is 1 + log_multiplier * ln(factor)
};

/// Sizes of a decoder, read once from metadata and checked. Families use the fields they have; the
/// rest stay zero.
struct decoder_config {
  std::string architecture;
  int layers = 0;
  int hidden = 0;
  int vocab = 0;
  int context = 0;
  float norm_eps = 1e-5F;

  int heads = 0;
  int kv_heads = 0;
  int key_dim = 0;    ///< per head
  int value_dim = 0;  ///< per head
  int rope_dim = 0;
  double rope_base = 10000;
  rope_scaling scaling;

  int q_lora = 0;    ///< MLA: 0 means that q is projected directly
  int kv_lora = 0;   ///< MLA: width of the latent
  int nope_dim = 0;  ///< MLA: unrotated part of a key head

  int dense_width = 0;    ///< inner width of dense feed-forward layers
  int leading_dense = 0;  ///< layers before the first mixture layer
  int experts = 0;        ///< 0 for a dense model
  int top_k = 0;
  int expert_width = 0;
  int shared_experts = 0;
  int latent_width = 0;  ///< what routed experts read and write; 0: the hidden state itself
  bool normalise_weights = true;
  float weights_scale = 1;
  gated_activation activation;  ///< of every feed-forward layer

  std::vector<bool> recurrent;  ///< per layer: delta attention; empty: none
  kda_shape kda;                ///< of recurrent layers
  /// Latent attention has an output gate, and that of delta attention is one matrix instead of the
  /// product of two narrow ones.
  bool full_gates = false;
  int bank_block = 0;  ///< layers between two stores to the residual bank; 0: an ordinary stream

  [[nodiscard]] bool is_mixture(int layer) const noexcept {
    return experts > 0 && layer >= leading_dense;
  }
  [[nodiscard]] int mixture_layers() const noexcept {
    return experts > 0 ? layers - leading_dense : 0;
  }
  /// Width of what routed experts read and write.
  [[nodiscard]] int expert_io() const noexcept { return latent_width > 0 ? latent_width : hidden; }
  [[nodiscard]] bool is_recurrent(int layer) const noexcept {
    return !recurrent.empty() && recurrent[static_cast<std::size_t>(layer)];
  }
  /// Whether the stream's live sum goes to the bank before this layer adds to it.
  [[nodiscard]] bool stores_before(int layer) const noexcept {
    return bank_block > 0 && layer % bank_block == 0;
  }
  /// Vectors that the bank holds after the last layer.
  [[nodiscard]] int bank_vectors() const noexcept {
    return bank_block > 0 ? (layers + bank_block - 1) / bank_block : 0;
  }
};

/// Fields every family shares. Errors: format_error naming the key that is missing or out of range.
[[nodiscard]] inline decoder_config read_common(metadata const& meta, std::string const& arch) {
  decoder_config config;
  auto const key = [&](char const* name) { return arch + "." + name; };
  auto const at_most = [&](char const* name, int value, int limit) {
    if (value > limit) {
      throw format_error{meta.source() + ": the key `" + key(name) + "` is " +
                         std::to_string(value) + ", more than the " + std::to_string(limit) +
                         " terrace supports"};
    }
    return value;
  };
  config.architecture = arch;
  config.layers = at_most("block_count", meta.get_count(key("block_count")), 4096);
  config.hidden = at_most("embedding_length", meta.get_count(key("embedding_length")), 1 << 20);
  config.context = meta.get_count(key("context_length"));
  config.heads = at_most("attention.head_count", meta.get_count(key("attention.head_count")), 4096);
  config.norm_eps = static_cast<float>(meta.get_number(key("attention.layer_norm_rms_epsilon")));
  config.rope_base = meta.try_number(key("rope.freq_base")).value_or(10000.0);
  if (!(config.norm_eps >= 0 && config.norm_eps < 1) ||
      !(config.rope_base > 1 && config.rope_base < 1e12)) {
    throw format_error{meta.source() + ": the norm epsilon " + std::to_string(config.norm_eps) +
                       " or the rope base " + std::to_string(config.rope_base) +
                       " is not a sensible number; the file is damaged"};
  }
  return config;
}

/// Grouped-query head counts and widths.
inline void read_gqa(metadata const& meta, std::string const& arch, decoder_config& config) {
  auto const key = [&](char const* name) { return arch + "." + name; };
  config.kv_heads = meta.try_count(key("attention.head_count_kv"), 1).value_or(config.heads);
  int const even_split = config.hidden / config.heads;
  config.key_dim = meta.try_count(key("attention.key_length"), 1).value_or(even_split);
  config.value_dim = meta.try_count(key("attention.value_length"), 1).value_or(config.key_dim);
  config.rope_dim = meta.try_count(key("rope.dimension_count"), 0).value_or(config.key_dim);
  if (config.kv_heads > config.heads || config.heads % config.kv_heads != 0) {
    throw format_error{meta.source() + ": " + std::to_string(config.heads) +
                       " attention heads cannot share " + std::to_string(config.kv_heads) +
                       " key/value heads evenly; the file is damaged"};
  }
  if (config.key_dim <= 0 || config.rope_dim > config.key_dim || config.rope_dim % 2 != 0) {
    throw format_error{meta.source() + ": a rotation of " + std::to_string(config.rope_dim) +
                       " dimensions does not fit heads of " + std::to_string(config.key_dim) +
                       "; the file is damaged"};
  }
}

/// Mixture sizes; `experts` stays 0 when the file has none.
inline void read_mixture(metadata const& meta, std::string const& arch, decoder_config& config) {
  auto const key = [&](char const* name) { return arch + "." + name; };
  config.experts = meta.get_count(key("expert_count"));
  config.top_k = meta.get_count(key("expert_used_count"));
  config.expert_width = meta.get_count(key("expert_feed_forward_length"));
  config.leading_dense = meta.try_count(key("leading_dense_block_count"), 0).value_or(0);
  config.shared_experts = meta.try_count(key("expert_shared_count"), 0).value_or(0);
  config.normalise_weights = meta.try_bool(key("expert_weights_norm")).value_or(true);
  config.weights_scale =
      static_cast<float>(meta.try_number(key("expert_weights_scale")).value_or(1.0));
  if (config.weights_scale == 0.0F) { config.weights_scale = 1.0F; }
  if (config.top_k > config.experts || config.experts > 65535) {
    throw format_error{meta.source() + ": " + std::to_string(config.top_k) + " of " +
                       std::to_string(config.experts) +
                       " experts is not a possible choice; the file is damaged"};
  }
  if (config.leading_dense > config.layers) {
    throw format_error{meta.source() + ": " + std::to_string(config.leading_dense) +
                       " leading dense layers of " + std::to_string(config.layers) +
                       " layers in all; the file is damaged"};
  }
  auto const gating = meta.try_unsigned(key("expert_gating_func")).value_or(2);
  if (gating != 2) {
    throw not_supported{meta.source() + ": the key `" + key("expert_gating_func") + "` is " +
                        std::to_string(gating) +
                        "; terrace knows the sigmoid router (2) for this family"};
  }
  if (meta.try_unsigned(key("expert_group_count")).value_or(1) > 1) {
    throw not_supported{meta.source() +
                        ": routing in groups of experts is not supported for this family"};
  }
}

}  // namespace terrace::model
