// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "routing_skew.hpp"
#include "shape.hpp"

#include <terrace/core/quant_type.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <numbers>
#include <string>
#include <utility>
#include <vector>

namespace terrace::synth {

/// What a tensor is for; types are chosen by it.
enum class tensor_class : std::uint8_t {
  experts,
  experts_down,  ///< the last matrix of a routed expert
  shared,
  dense,
  attention,
  embeddings,
  head,
  router,
  fixed,  ///< norms, biases and the like, which keep their type
};

/// Of routed experts.
[[nodiscard]] constexpr bool is_expert(tensor_class kind) noexcept {
  return kind == tensor_class::experts || kind == tensor_class::experts_down;
}

/// A type for each class of tensors.
using type_choice = std::map<tensor_class, quant_type>;

/// One tensor of a model, whatever the container.
struct model_tensor {
  std::string gguf{};  ///< its name there; empty when it is not there
  std::string hf{};    ///< the same for safetensors; "{}" stands for the number of a routed expert
  tensor_class kind = tensor_class::fixed;
  std::vector<std::uint64_t> shape;  ///< [out, in]; routed experts [experts, out, in]
  double mean = 0;
  double sigma = 0;             ///< standard deviation of its values
  bool wide = false;            ///< float32 in safetensors too
  std::vector<float> values{};  ///< exactly these instead of random ones
};

/// Lists the tensors of a model, sized so that hidden states keep their magnitude through any
/// number of layers: each product gives unit variance for unit variance, and what all layers add
/// up to is as large as the embedding. So about half of a last hidden state is the token itself,
/// and the rest is its context.
class tensor_lister {
 public:
  tensor_lister(model_shape const& shape, double zipf, std::uint64_t seed)
      : shape_{shape},
        bias_{ranked_bias(shape.experts, shape.top_k, zipf)},
        seed_{seed},
        root_{shape.family == family::kimi_k3 ? "language_model.model." : "model."},
        added_{1 / std::sqrt(2.0 * shape.layers)} {}

  [[nodiscard]] std::vector<model_tensor> list() {
    vocabulary();
    for (int layer = 0; layer < shape_.layers; ++layer) {
      gguf_ = "blk." + std::to_string(layer) + ".";
      hf_ = root_ + "layers." + std::to_string(layer) + ".";
      norm("attn_norm.weight", "input_layernorm.weight", shape_.hidden);
      attention(layer);
      norm("ffn_norm.weight", "post_attention_layernorm.weight", shape_.hidden);
      if (shape_.is_mixture(layer)) {
        mixture();
      } else {
        mlp(tensor_class::dense, "ffn_{}.weight", "mlp.{}_proj.weight", shape_.dense_width);
      }
      if (shape_.family == family::kimi_k3) { residual_mixers(); }
    }
    return std::move(list_);
  }

 private:
  static constexpr double silu_product = 0.6;  // standard deviation of silu(g) u, g and u normal

  void vocabulary() {
    gguf_.clear();
    hf_ = root_;
    matrix(tensor_class::embeddings,
           "token_embd.weight",
           "embed_tokens.weight",
           shape_.vocab,
           shape_.hidden,
           1);
    norm("output_norm.weight", "norm.weight", shape_.hidden);
    hf_ = shape_.family == family::kimi_k3 ? "language_model." : "";
    matrix(tensor_class::head,
           "output.weight",
           "lm_head.weight",
           shape_.vocab,
           shape_.hidden,
           2 / std::sqrt(shape_.hidden));
    hf_ = root_;
    if (shape_.family == family::llama) { llama_divisors(); }
    if (shape_.family == family::kimi_k3) { mixer("output_res_score.weight", "output_attn_res_"); }
  }

  // ---- attention ----

  void attention(int layer) {
    if (shape_.is_hybrid() && !shape_.is_full_attention(layer)) { return recurrent_attention(); }
    if (shape_.kv_lora > 0) { return latent_attention(); }
    int const q = shape_.heads * shape_.head_dim;
    int const kv = shape_.kv_heads * shape_.head_dim;
    project("attn_q.weight", "q_proj.weight", q, shape_.hidden);
    project("attn_k.weight", "k_proj.weight", kv, shape_.hidden);
    project("attn_v.weight", "v_proj.weight", kv, shape_.hidden);
    project("attn_output.weight", "o_proj.weight", shape_.hidden, q, added_);
    if (shape_.family == family::minimax_m2) {
      norm("attn_q_norm.weight", "self_attn.q_norm.weight", q);
      norm("attn_k_norm.weight", "self_attn.k_norm.weight", kv);
    }
  }

  void latent_attention() {
    int const values = shape_.heads * shape_.value_dim;
    int const latent = shape_.kv_lora;
    int const queries = shape_.heads * (shape_.nope_dim + shape_.rope_dim);
    if (shape_.q_lora == 0) {
      project("attn_q.weight", "q_proj.weight", queries, shape_.hidden);
    } else {
      project("attn_q_a.weight", "q_a_proj.weight", shape_.q_lora, shape_.hidden);
      norm("attn_q_a_norm.weight", "self_attn.q_a_layernorm.weight", shape_.q_lora);
      project("attn_q_b.weight", "q_b_proj.weight", queries, shape_.q_lora);
    }
    project("attn_kv_a_mqa.weight",
            "kv_a_proj_with_mqa.weight",
            latent + shape_.rope_dim,
            shape_.hidden);
    norm("attn_kv_a_norm.weight", "self_attn.kv_a_layernorm.weight", latent);
    // GGUF keeps the two factors apart, keys transposed.
    double const sigma = 1 / std::sqrt(latent);
    add({.gguf = gguf_ + "attn_k_b.weight",
         .kind = tensor_class::attention,
         .shape = sizes({shape_.heads, latent, shape_.nope_dim}),
         .sigma = sigma});
    add({.gguf = gguf_ + "attn_v_b.weight",
         .kind = tensor_class::attention,
         .shape = sizes({shape_.heads, shape_.value_dim, latent}),
         .sigma = sigma});
    add({.hf = hf_ + "self_attn.kv_b_proj.weight",
         .kind = tensor_class::attention,
         .shape = sizes({shape_.heads * (shape_.nope_dim + shape_.value_dim), latent}),
         .sigma = sigma});
    project("attn_output.weight", "o_proj.weight", shape_.hidden, values, added_);
    if (shape_.family == family::kimi_k3) {
      project("attn_gate.weight", "g_proj.weight", values, shape_.hidden);
    }
  }

  /// Kimi delta attention. The decay of a token is near 0.9, so that states forget slowly.
  void recurrent_attention() {
    int const width = shape_.heads * shape_.head_dim;
    for (std::string const part : {"q", "k", "v"}) {
      project("attn_" + part + ".weight", part + "_proj.weight", width, shape_.hidden);
      add({.gguf = gguf_ + "ssm_conv1d_" + part + ".weight",
           .hf = hf_ + "self_attn." + part + "_conv1d.weight",
           .shape = sizes({width, 1, 4}),
           .sigma = 0.5});
    }
    project("ssm_f_a.weight", "f_a_proj.weight", shape_.head_dim, shape_.hidden);
    project("ssm_f_b.weight", "f_b_proj.weight", width, shape_.head_dim);
    project("ssm_beta.weight", "b_proj.weight", shape_.heads, shape_.hidden);
    if (shape_.family == family::kimi_k3) {
      project("ssm_g.weight", "g_proj.weight", width, shape_.hidden);
    } else {
      project("ssm_g_a.weight", "g_a_proj.weight", shape_.head_dim, shape_.hidden);
      project("ssm_g_b.weight", "g_b_proj.weight", width, shape_.head_dim);
    }
    norm("ssm_norm.weight", "self_attn.o_norm.weight", shape_.head_dim);
    project("attn_output.weight", "o_proj.weight", shape_.hidden, width, 2 * added_);
    decay(width);
  }
  /// -e^A per head in GGUF, A in safetensors, where Kimi K3 fills the list up with zeros.
  void decay(int width) {
    random_words const words{key_of(seed_, gguf_ + "ssm_a")};
    auto const heads = static_cast<std::size_t>(shape_.heads);
    auto const head = static_cast<std::size_t>(shape_.head_dim);
    bool const k3 = shape_.family == family::kimi_k3;
    std::vector<float> logarithm(k3 ? (heads + head - 1) / head * head : heads, 0.0F);
    std::vector<float> rate(heads);
    for (std::size_t i = 0; i < heads; ++i) {
      logarithm[i] = static_cast<float>(words.real(i) - 0.5);
      rate[i] = -std::exp(logarithm[i]);
    }
    auto const shape = [k3](std::uint64_t count) {
      return k3 ? std::vector{count} : std::vector<std::uint64_t>{1, 1, count, 1};
    };
    add({.gguf = gguf_ + "ssm_a", .shape = shape(heads), .values = std::move(rate)});
    std::uint64_t const stored = logarithm.size();
    add({.hf = hf_ + "self_attn.A_log",
         .shape = shape(stored),
         .wide = true,
         .values = std::move(logarithm)});
    add({.gguf = gguf_ + "ssm_dt.bias",
         .hf = hf_ + "self_attn.dt_bias",
         .shape = sizes({width}),
         .mean = -4,
         .sigma = 0.5,
         .wide = true});
  }

  // ---- feed-forward ----

  void mlp(tensor_class kind, std::string const& gguf, std::string const& hf, int width) {
    auto const with = [](std::string text, std::string const& part) {
      return text.replace(text.find("{}"), 2, part);
    };
    double const in = 1 / std::sqrt(shape_.hidden);
    for (std::string const part : {"gate", "up"}) {
      matrix(kind, with(gguf, part), with(hf, part), width, shape_.hidden, in);
    }
    matrix(kind,
           with(gguf, "down"),
           with(hf, "down"),
           shape_.hidden,
           width,
           added_ / silu_product / std::sqrt(width));
  }

  void mixture() {
    bool const k2 = shape_.family == family::kimi_k2;
    std::string const module = k2 ? "mlp." : "block_sparse_moe.";
    bool const minimax = shape_.family == family::minimax_m2;
    add({.gguf = gguf_ + "ffn_gate_inp.weight",
         .hf = hf_ + module + "gate.weight",
         .kind = tensor_class::router,
         .shape = sizes({shape_.experts, shape_.hidden}),
         .sigma = router_spread / std::sqrt(shape_.hidden),
         .wide = minimax});
    random_words const words{key_of(seed_, gguf_ + "exp_probs_b.bias")};
    add({.gguf = gguf_ + "exp_probs_b.bias",
         .hf = hf_ + module + (minimax ? "" : "gate.") + "e_score_correction_bias",
         .shape = sizes({shape_.experts}),
         .wide = true,
         .values = dealt(bias_, words)});
    experts(module, k2);
    if (shape_.latent > 0) { latent_width(module); }
    if (shape_.shared_experts > 0) {
      mlp(tensor_class::shared,
          "ffn_{}_shexp.weight",
          module + "shared_experts.{}_proj.weight",
          shape_.shared_experts * shape_.expert_width);
    }
  }
  void experts(std::string const& module, bool spelled_out) {
    int const to = shape_.expert_hidden();
    double const in = 1 / std::sqrt(to);
    // Weights of a token's experts sum to one: their mean square is near 1 / top_k.
    double const kept = shape_.weights_scale() / std::sqrt(shape_.top_k);
    double const out = added_ / silu_product / kept / std::sqrt(shape_.expert_width);
    stack(tensor_class::experts,
          "ffn_gate_exps.weight",
          module,
          spelled_out ? "gate_proj" : "w1",
          shape_.expert_width,
          to,
          in);
    stack(tensor_class::experts,
          "ffn_up_exps.weight",
          module,
          spelled_out ? "up_proj" : "w3",
          shape_.expert_width,
          to,
          in);
    stack(tensor_class::experts_down,
          "ffn_down_exps.weight",
          module,
          spelled_out ? "down_proj" : "w2",
          to,
          shape_.expert_width,
          out);
  }
  void stack(tensor_class kind,
             char const* gguf,
             std::string const& module,
             char const* hf,
             int rows,
             int cols,
             double sigma) {
    add({.gguf = gguf_ + gguf,
         .hf = hf_ + module + "experts.{}." + hf + ".weight",
         .kind = kind,
         .shape = sizes({shape_.experts, rows, cols}),
         .sigma = sigma});
  }
  void latent_width(std::string const& module) {
    matrix(tensor_class::dense,
           "ffn_routed_down.weight",
           module + "routed_expert_down_proj.weight",
           shape_.latent,
           shape_.hidden,
           1 / std::sqrt(shape_.hidden));
    norm("ffn_routed_norm.weight", module + "routed_expert_norm.weight", shape_.latent);
    matrix(tensor_class::dense,
           "ffn_routed_up.weight",
           module + "routed_expert_up_proj.weight",
           shape_.hidden,
           shape_.latent,
           added_ / std::sqrt(shape_.latent));
  }

  // ---- vectors ----

  void residual_mixers() {
    mixer("attn_res_score.weight", "self_attention_res_");
    mixer("ffn_res_score.weight", "mlp_res_");
  }
  /// The vector that scores the residual bank: one in GGUF, a norm and a row in safetensors.
  void mixer(char const* gguf, std::string const& hf) {
    double const sigma = 1 / std::sqrt(shape_.hidden);
    auto const width = static_cast<std::uint64_t>(shape_.hidden);
    add({.gguf = gguf_ + gguf, .shape = {width}, .sigma = sigma});
    add({.hf = hf_ + hf + "norm.weight", .shape = {width}, .mean = 1, .sigma = 0.1});
    add({.hf = hf_ + hf + "proj.weight", .shape = {1, width}, .sigma = sigma});
  }
  void norm(std::string const& gguf, std::string const& hf, int width) {
    add({.gguf = gguf_ + gguf, .hf = hf_ + hf, .shape = sizes({width}), .mean = 1, .sigma = 0.1});
  }
  /// Divisors of the rotation frequencies for a context stretched 8 times from 8192 tokens.
  void llama_divisors() {
    std::vector<float> divisors;
    int const pairs = shape_.rope_dim / 2;
    for (int i = 0; i < pairs; ++i) {
      double const wavelength =
          2 * std::numbers::pi * std::pow(500'000.0, static_cast<double>(i) / pairs);
      double const smooth = std::clamp((8192 / wavelength - 1) / (4 - 1), 0.0, 1.0);
      divisors.push_back(static_cast<float>(1 / ((1 - smooth) / 8 + smooth)));
    }
    add({.gguf = "rope_freqs.weight", .shape = sizes({pairs}), .values = std::move(divisors)});
  }

  // ---- adding ----

  static std::vector<std::uint64_t> sizes(std::initializer_list<int> dims) {
    std::vector<std::uint64_t> out;
    for (int const dim : dims) { out.push_back(static_cast<std::uint64_t>(dim)); }
    return out;
  }
  void project(
      std::string const& gguf, std::string const& hf, int rows, int cols, double gain = 1) {
    matrix(tensor_class::attention, gguf, "self_attn." + hf, rows, cols, gain / std::sqrt(cols));
  }
  void matrix(tensor_class kind,
              std::string const& gguf,
              std::string const& hf,
              int rows,
              int cols,
              double sigma) {
    add({.gguf = gguf_ + gguf,
         .hf = hf_ + hf,
         .kind = kind,
         .shape = sizes({rows, cols}),
         .sigma = sigma});
  }
  void add(model_tensor tensor) { list_.push_back(std::move(tensor)); }

  model_shape const& shape_;
  std::vector<float> bias_;  ///< of a router's experts, by rank
  std::uint64_t seed_;
  std::string root_;
  double added_;  ///< standard deviation of what a sublayer adds
  std::string gguf_, hf_;
  std::vector<model_tensor> list_;
};

}  // namespace terrace::synth
