// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/error.hpp>
#include <terrace/core/metadata.hpp>
#include <terrace/format/detail/hybrid_config.hpp>
#include <terrace/format/detail/json_text.hpp>
#include <terrace/format/detail/text.hpp>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace terrace::format {
namespace detail {

/// Translates one config.json into GGUF keys.
class config_translator : hybrid_config {
 public:
  config_translator(json const& config, json const& generation, std::string source)
      : hybrid_config{config, generation, std::move(source)} {}

  metadata translate() {
    arch_ = architecture();
    out_.set("general.architecture", arch_);
    tokens();
    bool const known =
        arch_ == "llama" || arch_ == "minimax-m2" || arch_ == "deepseek2" || is_kimi_linear();
    if (!known) { return std::move(out_); }  // whoever builds the model says that it cannot
    common();
    if (arch_ == "llama") { llama(); }
    if (arch_ == "minimax-m2") { minimax(); }
    if (arch_ == "deepseek2") { deepseek(); }
    if (is_kimi_linear()) {
      kimi_linear();
    } else {
      rope();
    }
    return std::move(out_);
  }

 private:
  // ---- the model families ----

  [[nodiscard]] bool is_kimi_linear() const noexcept {
    return arch_ == "kimi-k3" || arch_ == "kimi-linear";
  }

  [[nodiscard]] std::string architecture() const {
    std::string type = try_text(*text_, "model_type").value_or("");
    for (json const* const part : {&config_, text_}) {
      auto const* names = find(*part, "architectures");
      if (names == nullptr || !names->is_array() || names->empty() || !names->front().is_string()) {
        continue;
      }
      std::string const name = names->front().get<std::string>();
      if (name == "LlamaForCausalLM") { return "llama"; }
      if (name == "MiniMaxM2ForCausalLM") { return "minimax-m2"; }
      if (name == "DeepseekV3ForCausalLM" || name == "KimiK2ForCausalLM" ||
          name == "KimiK25ForConditionalGeneration") {
        return "deepseek2";
      }
      if (name == "KimiK3ForConditionalGeneration") { return "kimi-k3"; }
      if (name == "KimiLinearForCausalLM") { return "kimi-linear"; }
    }
    if (type == "minimax_m2") { return "minimax-m2"; }
    if (type == "kimi_k2" || type == "deepseek_v3" || type == "kimi_k25") { return "deepseek2"; }
    if (type.empty()) {
      throw format_error{
          source_ +
          ": has neither `architectures` nor `model_type`; it is not a model configuration"};
    }
    return type;
  }

  void common() {
    need("num_hidden_layers", "block_count");
    need("hidden_size", "embedding_length");
    need("vocab_size", "vocab_size");
    need("max_position_embeddings", "context_length");
    need("intermediate_size", "feed_forward_length");
    need("num_attention_heads", "attention.head_count");
    auto const eps = try_real(*text_, "rms_norm_eps");
    if (!eps) { missing("rms_norm_eps"); }
    put("attention.layer_norm_rms_epsilon", *eps);
    auto const* tied = find("tie_word_embeddings");
    if (tied == nullptr) { tied = find(config_, "tie_word_embeddings"); }
    if (tied != nullptr && tied->is_boolean()) { put("tie_word_embeddings", tied->get<bool>()); }
  }

  void llama() {
    expect("hidden_act", "silu");
    expect("attention_bias", false);
    expect("mlp_bias", false);
    plain_attention(1.0);
  }

  /// Heads of one size for queries, keys and values. `rotated`: the part of a head that rope turns,
  /// unless stated.
  void plain_attention(double rotated) {
    std::uint64_t const heads = need_whole("num_attention_heads");
    put("attention.head_count_kv", try_whole("num_key_value_heads").value_or(heads));
    auto head = try_whole("head_dim");
    if (!head) {
      std::uint64_t const width = need_whole("hidden_size");
      if (heads == 0 || width % heads != 0) { missing("head_dim"); }
      head = width / heads;
    }
    put("attention.key_length", *head);
    put("attention.value_length", *head);
    double part = try_real(*text_, "partial_rotary_factor").value_or(rotated);
    if (auto const* v5 = find("rope_parameters"); v5 != nullptr && v5->is_object()) {
      part = try_real(*v5, "partial_rotary_factor").value_or(part);
    }
    if (!(part > 0 && part <= 1)) { wrong("partial_rotary_factor", "between 0 and 1"); }
    put("rope.dimension_count",
        try_whole("rotary_dim")
            .value_or(static_cast<std::uint64_t>(part * static_cast<double>(*head))));
  }

  void minimax() {
    expect("hidden_act", "silu");
    expect("qk_norm_type", "per_layer");
    expect("use_qk_norm", true);
    expect("shared_intermediate_size", 0);
    if (auto const* kinds = find("attn_type_list"); kinds != nullptr && kinds->is_array()) {
      for (auto const& kind : *kinds) {
        if (kind != 1) {
          throw not_supported{source_ +
                              ": `attn_type_list` asks for attention other than full (1)"};
        }
      }
    }
    plain_attention(1.0);
    need("intermediate_size", "expert_feed_forward_length");
    need("num_local_experts", "expert_count");
    need("num_experts_per_tok", "expert_used_count");
    gating();
  }

  void deepseek() {
    expect("hidden_act", "silu");
    expect("attention_bias", false);
    expect("moe_layer_freq", 1);
    expect("topk_method", "noaux_tc");
    put("attention.head_count_kv", std::uint64_t{1});
    latent_attention();
    need("n_routed_experts", "expert_count");
    need("num_experts_per_tok", "expert_used_count");
    need("moe_intermediate_size", "expert_feed_forward_length");
    copy("n_shared_experts", "expert_shared_count");
    copy("n_group", "expert_group_count");
    copy("topk_group", "expert_group_used_count");
    put("leading_dense_block_count", try_whole("first_k_dense_replace").value_or(0));
    put("expert_weights_scale", try_real(*text_, "routed_scaling_factor").value_or(1.0));
    copy_flag("norm_topk_prob", "expert_weights_norm");
    gating();
    packed_groups();
  }

  void latent_attention() {
    std::uint64_t const latent = need_whole("kv_lora_rank");
    std::uint64_t const plain = need_whole("qk_nope_head_dim");
    std::uint64_t const rotated = need_whole("qk_rope_head_dim");
    put("attention.kv_lora_rank", latent);
    copy("q_lora_rank", "attention.q_lora_rank");
    put("attention.key_length", latent + rotated);
    put("attention.value_length", latent);
    put("attention.key_length_mla", plain + rotated);
    need("v_head_dim", "attention.value_length_mla");
    put("rope.dimension_count", rotated);
  }

  void gating(char const* key = "scoring_func") {
    std::string const name = try_text(*text_, key).value_or("sigmoid");
    if (name != "sigmoid" && name != "softmax") {
      throw not_supported{source_ + ": the key " + in_quotes(key) + " is " + in_quotes(name) +
                          "; sigmoid and softmax are computed"};
    }
    put("expert_gating_func", std::uint64_t{name == "softmax" ? 1U : 2U});
  }

  /// Kimi-Linear and Kimi K3, which share a text configuration. Its `top_k` is a default for
  /// sampling, and `quantization_config` claims more than is packed: tensors tell that.
  void kimi_linear() {
    bool const k3 = arch_ == "kimi-k3";
    expect("moe_layer_freq", 1);
    expect("topk_method", "noaux_tc");
    expect("mla_use_nope", true);
    expect("hidden_act", k3 ? "situ" : "silu");
    latent_attention();
    need("num_experts", "expert_count");
    need("num_experts_per_token", "expert_used_count");
    need("moe_intermediate_size", "expert_feed_forward_length");
    copy("num_shared_experts", "expert_shared_count");
    copy("num_expert_group", "expert_group_count");
    copy("topk_group", "expert_group_used_count");
    put("leading_dense_block_count", try_whole("first_k_dense_replace").value_or(0));
    put("expert_weights_scale", try_real(*text_, "routed_scaling_factor").value_or(1.0));
    copy_flag("moe_renormalize", "expert_weights_norm");
    gating("moe_router_activation_func");
    recurrent_layers();
    packed_groups();
    if (!k3) { return; }
    expect("mla_use_output_gate", true);
    expect("latent_moe_use_norm", true);
    need("routed_expert_hidden_size", "expert_latent_length");
    need("attn_res_block_size", "attn_res.block_size");
    put("activation.situ_beta", need_real(*text_, "activation_situ_beta"));
    put("activation.situ_linear_beta", need_real(*text_, "activation_situ_linear_beta"));
  }

  // ---- rope ----

  /// Two spellings: `rope_theta` and `rope_scaling`, or both inside `rope_parameters` (transformers
  /// 5).
  void rope() {
    json const* scaling = find("rope_parameters");
    if (scaling == nullptr) { scaling = find("rope_scaling"); }
    if (scaling != nullptr && !scaling->is_object()) { wrong("rope_scaling", "an object"); }
    std::optional<double> base = try_real(*text_, "rope_theta");
    if (!base && scaling != nullptr) { base = try_real(*scaling, "rope_theta"); }
    if (!base && arch_ == "llama") { base = 10'000.0; }  // what the family means by leaving it out
    if (!base) { missing("rope_theta"); }
    put("rope.freq_base", *base);
    if (scaling == nullptr) { return; }

    auto const type =
        try_text(*scaling, "rope_type").value_or(try_text(*scaling, "type").value_or("default"));
    if (type == "default") { return; }
    put("rope.scaling.type", type);
    put("rope.scaling.factor", need_real(*scaling, "factor"));
    if (auto const length = find(*scaling, "original_max_position_embeddings")) {
      put("rope.scaling.original_context_length",
          whole(*length, "original_max_position_embeddings"));
    } else if (type == "llama3" || type == "yarn") {
      missing("rope_scaling.original_max_position_embeddings");
    }
    if (type == "llama3") {
      put("rope.scaling.low_freq_factor", need_real(*scaling, "low_freq_factor"));
      put("rope.scaling.high_freq_factor", need_real(*scaling, "high_freq_factor"));
    }
    if (type == "yarn") { yarn(*scaling); }
  }
  void yarn(json const& scaling) {
    put("rope.scaling.yarn_beta_fast", try_real(scaling, "beta_fast").value_or(32.0));
    put("rope.scaling.yarn_beta_slow", try_real(scaling, "beta_slow").value_or(1.0));
    double const all = try_real(scaling, "mscale_all_dim").value_or(0.0);
    if (double const cosine = try_real(scaling, "mscale").value_or(1.0); cosine != all) {
      throw not_supported{source_ + ": `rope_scaling` has `mscale` " + std::to_string(cosine) +
                          " and `mscale_all_dim` " + std::to_string(all) +
                          "; only equal values are computed"};
    }
    put("rope.scaling.yarn_log_multiplier", 0.1 * all);
  }

  // ---- tokens ----

  /// Ids of one key, which may be a number, a list or absent.
  void collect(json const& object, char const* key, std::vector<std::uint64_t>& ids) const {
    auto const* value = object.is_object() ? find(object, key) : nullptr;
    if (value == nullptr) { return; }
    auto const add = [&](json const& id) {
      std::uint64_t const number = whole(id, key);
      if (std::find(ids.begin(), ids.end(), number) == ids.end()) { ids.push_back(number); }
    };
    if (value->is_array()) {
      for (auto const& id : *value) { add(id); }
    } else {
      add(*value);
    }
  }
  /// The two files disagree in published models: every end id of either ends a text, but
  /// config.json's start id is the one the model was trained with.
  void tokens() {
    std::vector<std::uint64_t> ends, starts, pads;
    for (json const* const part : {text_, &config_, &generation_}) {
      collect(*part, "eos_token_id", ends);
      collect(*part, "bos_token_id", starts);
      collect(*part, "pad_token_id", pads);
    }
    if (!starts.empty()) { out_.set("tokenizer.ggml.bos_token_id", starts.front()); }
    if (!pads.empty()) { out_.set("tokenizer.ggml.padding_token_id", pads.front()); }
    if (ends.empty()) { return; }
    out_.set("tokenizer.ggml.eos_token_id", ends.front());
    out_.set("tokenizer.ggml.eos_token_ids", std::move(ends));
  }
};

}  // namespace detail

/// The texts of a config.json and a generation_config.json (which may be empty) as GGUF metadata;
/// `source` stands for them in sentences. Keys and errors are those of `read_model_config`.
[[nodiscard]] inline metadata parse_model_config(std::string_view config,
                                                 std::string_view generation,
                                                 std::string const& source) {
  auto const main = detail::parse_json(config, source);
  auto const other =
      generation.empty() ? detail::json::object() : detail::parse_json(generation, source);
  return detail::config_translator{main, other, source}.translate();
}

/// Reads config.json and, where present, generation_config.json of `folder` as GGUF metadata
/// ("llama.block_count").
///
/// Keys are those of the GGUF converters and four of our own:
/// `{arch}.rope.scaling.low_freq_factor` and `.high_freq_factor`, for which GGUF has the tensor
/// rope_freqs.weight instead; `{arch}.tie_word_embeddings`; and `tokenizer.ggml.eos_token_ids`, all
/// end ids as an array.
///
/// Errors: format_error naming a missing or malformed key; not_supported for a setting that
///         terrace does not compute.
[[nodiscard]] inline metadata read_model_config(std::filesystem::path const& folder) {
  auto const path = folder / "config.json";
  auto const generation_path = folder / "generation_config.json";
  detail::json const config = detail::read_json(path);
  std::error_code code;
  detail::json const generation = std::filesystem::exists(generation_path, code)
                                      ? detail::read_json(generation_path)
                                      : detail::json::object();
  metadata meta = detail::config_translator{config, generation, path.string()}.translate();
  meta.set("general.name",
           std::filesystem::absolute(folder).lexically_normal().filename().string());
  return meta;
}

}  // namespace terrace::format
