// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/error.hpp>

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace terrace::synth {

enum class family : std::uint8_t {
  llama = 1,
  minimax_m2 = 2,
  kimi_k2 = 4,
  kimi_k3 = 8,
  kimi_linear = 16
};

struct family_name {
  family value;
  std::string_view name;  ///< on the command line
};
inline constexpr std::array<family_name, 5> families{{{family::llama, "llama"},
                                                      {family::minimax_m2, "minimax-m2"},
                                                      {family::kimi_k2, "kimi-k2"},
                                                      {family::kimi_k3, "kimi-k3"},
                                                      {family::kimi_linear, "kimi-linear"}}};

[[nodiscard]] constexpr std::string_view name_of(family which) noexcept {
  for (auto const& entry : families) {
    if (entry.value == which) { return entry.name; }
  }
  return "unknown";
}

/// Dimensions of a model. A family uses those that `dimensions` gives it; the rest stay zero.
struct model_shape {
  synth::family family = family::llama;
  int layers = 0;
  int hidden = 0;
  int vocab = 0;
  int context = 0;
  int heads = 0;
  int kv_heads = 0;
  int head_dim =
      0;  ///< of queries, keys and values; in kimi-k3 and kimi-linear of recurrent layers
  int rope_dim = 0;  ///< rotated part of a key; there the part that has no rotation either
  int nope_dim = 0;
  int value_dim = 0;
  int q_lora = 0;
  int kv_lora = 0;
  int dense_width = 0;
  int dense_layers = 0;
  int experts = 0;
  int top_k = 0;
  int expert_width = 0;
  int shared_experts = 0;
  int latent = 0;     ///< width at which experts read and write
  int res_block = 0;  ///< layers between two stores to the residual bank

  [[nodiscard]] bool is_mixture(int layer) const noexcept {
    return experts > 0 && layer >= dense_layers;
  }
  /// Kimi delta attention in most layers.
  [[nodiscard]] bool is_hybrid() const noexcept {
    return family == family::kimi_k3 || family == family::kimi_linear;
  }
  /// In a hybrid: whether the layer, counted from 0, is one of full attention.
  [[nodiscard]] bool is_full_attention(int layer) const noexcept {
    return layer % 4 == 3 || layer == layers - 1;
  }
  /// Width of what experts read and write.
  [[nodiscard]] int expert_hidden() const noexcept { return latent > 0 ? latent : hidden; }
  [[nodiscard]] double weights_scale() const noexcept {
    return family == family::kimi_k2 ? 2.827 : family == family::kimi_linear ? 2.446 : 1.0;
  }
};

/// A dimension that the command line may set.
struct dimension {
  std::string_view option;
  int model_shape::*value;
  unsigned used_by;  ///< families, as a sum of their values
  int most;
  std::string_view help;
};
inline constexpr unsigned any_family = 31, mixtures = 30, kimi = 28, plain_attention = 3;
inline constexpr std::array<dimension, 20> dimensions{{
    {"--layers", &model_shape::layers, any_family, 4096, "Layers, dense ones included"},
    {"--hidden", &model_shape::hidden, any_family, 1 << 20, "Width of the hidden state"},
    {"--vocab", &model_shape::vocab, any_family, 457'000, "Rows of the embedding"},
    {"--context", &model_shape::context, any_family, 1 << 30, "Context the model states"},
    {"--heads", &model_shape::heads, any_family, 4096, "Attention heads"},
    {"--kv-heads", &model_shape::kv_heads, plain_attention, 4096, "Key and value heads"},
    {"--head-dim", &model_shape::head_dim, 27, 1 << 16, "Width of a head"},
    {"--rope-dim", &model_shape::rope_dim, 30, 1 << 16, "Rotated part of a head"},
    {"--nope-dim", &model_shape::nope_dim, kimi, 1 << 16, "Unrotated part of a key head"},
    {"--value-dim", &model_shape::value_dim, kimi, 1 << 16, "Width of a value head"},
    {"--q-lora", &model_shape::q_lora, 12, 1 << 20, "Rank of the queries"},
    {"--kv-lora", &model_shape::kv_lora, kimi, 1 << 20, "Rank of the keys and values"},
    {"--dense-width", &model_shape::dense_width, 29, 1 << 24, "Inner width of dense layers"},
    {"--dense-layers", &model_shape::dense_layers, kimi, 4096, "Dense layers before the mixtures"},
    {"--experts", &model_shape::experts, mixtures, 65535, "Routed experts of a layer"},
    {"--top-k", &model_shape::top_k, mixtures, 65535, "Experts a token uses"},
    {"--expert-width", &model_shape::expert_width, mixtures, 1 << 24, "Inner width of an expert"},
    {"--shared-experts", &model_shape::shared_experts, kimi, 64, "Experts every token uses"},
    {"--latent", &model_shape::latent, 8, 1 << 20, "Width at which experts read and write"},
    {"--res-block", &model_shape::res_block, 8, 4096, "Layers between stores to the bank"},
}};

[[nodiscard]] constexpr bool is_used(dimension const& which, family by) noexcept {
  return (which.used_by & static_cast<unsigned>(by)) != 0;
}

/// The dimensions of the published model. `variant` is for llama: 8b, 70b or 405b.
[[nodiscard]] inline model_shape real_shape(family which, std::string_view variant = "8b") {
  switch (which) {
    case family::minimax_m2:
      return {.family = which,
              .layers = 62,
              .hidden = 3072,
              .vocab = 200'064,
              .context = 196'608,
              .heads = 48,
              .kv_heads = 8,
              .head_dim = 128,
              .rope_dim = 64,
              .experts = 256,
              .top_k = 8,
              .expert_width = 1536};
    case family::kimi_k2:
      return {.family = which,
              .layers = 61,
              .hidden = 7168,
              .vocab = 163'840,
              .context = 262'144,
              .heads = 64,
              .rope_dim = 64,
              .nope_dim = 128,
              .value_dim = 128,
              .q_lora = 1536,
              .kv_lora = 512,
              .dense_width = 18'432,
              .dense_layers = 1,
              .experts = 384,
              .top_k = 8,
              .expert_width = 2048,
              .shared_experts = 1};
    case family::kimi_k3:
      return {.family = which,
              .layers = 93,
              .hidden = 7168,
              .vocab = 163'840,
              .context = 1'048'576,
              .heads = 96,
              .head_dim = 128,
              .rope_dim = 64,
              .nope_dim = 128,
              .value_dim = 128,
              .q_lora = 1536,
              .kv_lora = 512,
              .dense_width = 33792,
              .dense_layers = 1,
              .experts = 896,
              .top_k = 16,
              .expert_width = 3072,
              .shared_experts = 2,
              .latent = 3584,
              .res_block = 12};
    case family::kimi_linear:
      return {.family = which,
              .layers = 27,
              .hidden = 2304,
              .vocab = 163'840,
              .context = 1'048'576,
              .heads = 32,
              .head_dim = 128,
              .rope_dim = 64,
              .nope_dim = 128,
              .value_dim = 128,
              .kv_lora = 512,
              .dense_width = 9216,
              .dense_layers = 1,
              .experts = 256,
              .top_k = 8,
              .expert_width = 1024,
              .shared_experts = 1};
    default:
      break;
  }
  model_shape shape{.family = which,
                    .layers = 32,
                    .hidden = 4096,
                    .vocab = 128'256,
                    .context = 131'072,
                    .heads = 32,
                    .kv_heads = 8,
                    .head_dim = 128,
                    .rope_dim = 128,
                    .dense_width = 14'336};
  if (variant == "70b") {
    shape.layers = 80;
    shape.hidden = 8192;
    shape.heads = 64;
    shape.dense_width = 28'672;
  } else if (variant == "405b") {
    shape.layers = 126;
    shape.hidden = 16'384;
    shape.heads = 128;
    shape.dense_width = 53'248;
  }
  return shape;
}

/// A model of the family that runs anywhere at once.
[[nodiscard]] inline model_shape small_shape(family which) {
  model_shape shape = real_shape(which);
  shape.layers = shape.is_hybrid() ? 5 : 3;
  shape.hidden = 256;
  shape.vocab = 2048;
  shape.context = 8192;
  shape.heads = 4;
  for (dimension const& each : dimensions) {
    auto const set = [&](std::string_view option, int value) {
      if (each.option == option && is_used(each, which)) { shape.*each.value = value; }
    };
    set("--kv-heads", 2);
    set("--head-dim", 64);
    set("--rope-dim", 32);
    set("--nope-dim", 64);
    set("--value-dim", 64);
    set("--q-lora", 128);
    set("--kv-lora", 64);
    set("--dense-width", 768);
    set("--experts", 16);
    set("--top-k", 4);
    set("--expert-width", 256);
    set("--latent", 128);
    set("--res-block", 2);
  }
  if (which == family::llama) { shape.rope_dim = shape.head_dim; }
  return shape;
}

/// Special tokens at the end of the vocabulary.
[[nodiscard]] constexpr int special_tokens(model_shape const& shape) noexcept {
  if (shape.family == family::minimax_m2) { return 64; }
  return shape.family == family::llama && shape.vocab < 2048 ? 16 : 256;
}

/// Errors: contract_error naming the dimensions that do not go together.
inline void check(model_shape const& shape) {
  auto const refuse = [&](std::string const& what) {
    throw contract_error{std::string{name_of(shape.family)} + ": " + what};
  };
  auto const text = [](int value) { return std::to_string(value); };
  for (dimension const& each : dimensions) {
    if (!is_used(each, shape.family)) { continue; }
    int const value = shape.*each.value;
    bool const may_be_none =
        each.value == &model_shape::dense_layers || each.value == &model_shape::shared_experts;
    if (value < (may_be_none ? 0 : 1) || value > each.most) {
      refuse(std::string{each.option} + " is " + text(value) + "; it goes from " +
             (may_be_none ? "0" : "1") + " to " + text(each.most));
    }
  }
  if (shape.kv_heads > 0 && shape.heads % shape.kv_heads != 0) {
    refuse("--heads " + text(shape.heads) + " is no multiple of --kv-heads " +
           text(shape.kv_heads));
  }
  bool const whole_head = shape.nope_dim == 0 && shape.rope_dim > shape.head_dim;
  if (shape.rope_dim % 2 != 0 || whole_head) {
    refuse("a rotation of " + text(shape.rope_dim) + " dimensions must be even" +
           (whole_head ? " and fit heads of " + text(shape.head_dim) : ""));
  }
  if (shape.top_k > shape.experts) {
    refuse("--top-k " + text(shape.top_k) + " of " + text(shape.experts) +
           " experts is not a possible choice");
  }
  if (shape.dense_layers > shape.layers) {
    refuse("--dense-layers " + text(shape.dense_layers) + " is more than the " +
           text(shape.layers) + " layers of all");
  }
  int const least = 256 + special_tokens(shape);
  if (shape.vocab < least) {
    refuse("--vocab " + text(shape.vocab) + " has no room for 256 bytes and " +
           text(special_tokens(shape)) + " special tokens; give at least " + text(least));
  }
}

}  // namespace terrace::synth
