// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "shape.hpp"
#include "stored_tensors.hpp"

#include <terrace/core/quant_type.hpp>

#include <nlohmann/json.hpp>

#include <string>
#include <vector>

namespace terrace::synth {

using json = nlohmann::ordered_json;

/// Where special tokens of a family lie.
struct token_ids {
  int first_special = 0;
  int bos = 0;
  int eos = 0;
  int end_of_turn = 0;
};
[[nodiscard]] constexpr token_ids ids_of(model_shape const& shape) noexcept {
  int const first = shape.vocab - special_tokens(shape);
  switch (shape.family) {
    case family::llama:
      return {first, first, first + 1, first + 9};
    case family::minimax_m2:
      return {first, first + 34, first + 20, first + 20};
    default:
      return {first, first, first + 1, first + 2};
  }
}

namespace detail {

[[nodiscard]] inline json quantisation(type_choice const& types) {
  quant_type const experts = types.at(tensor_class::experts);
  quant_type const others = types.at(tensor_class::attention);
  bool const fp8 = experts == quant_type::fp8_e4m3 || others == quant_type::fp8_e4m3;
  bool const int4 = experts == quant_type::int4_g32;
  if (int4 || experts == quant_type::mxfp4_packed) {
    char const* const format = int4 ? "pack-quantized" : "mxfp4-pack-quantized";
    json weights{{"num_bits", 4},
                 {"type", int4 ? "int" : "float"},
                 {"symmetric", true},
                 {"strategy", "group"},
                 {"group_size", 32},
                 {"dynamic", false}};
    if (!int4) { weights["scale_dtype"] = "torch.uint8"; }
    return {{"quant_method", "compressed-tensors"},
            {"format", format},
            {"quantization_status", "compressed"},
            {"config_groups",
             {{"group_0",
               {{"format", format},
                {"targets", {"Linear"}},
                {"input_activations", nullptr},
                {"output_activations", nullptr},
                {"weights", weights}}}}},
            {"ignore",
             {"lm_head",
              "re:.*self_attn.*",
              "re:.*shared_experts.*",
              "re:.*mlp\\.(gate|up|gate_up|down)_proj.*"}}};
  }
  if (!fp8) { return nullptr; }
  return {{"quant_method", "fp8"},
          {"fmt", "e4m3"},
          {"weight_block_size", {128, 128}},
          {"activation_scheme", "dynamic"}};
}

[[nodiscard]] inline json llama_config(model_shape const& s) {
  return {{"architectures", {"LlamaForCausalLM"}},
          {"model_type", "llama"},
          {"hidden_act", "silu"},
          {"attention_bias", false},
          {"mlp_bias", false},
          {"head_dim", s.head_dim},
          {"num_key_value_heads", s.kv_heads},
          {"intermediate_size", s.dense_width},
          {"rms_norm_eps", 1e-5},
          {"rope_theta", 500000.0},
          {"rope_scaling",
           {{"rope_type", "llama3"},
            {"factor", 8.0},
            {"low_freq_factor", 1.0},
            {"high_freq_factor", 4.0},
            {"original_max_position_embeddings", 8192}}}};
}

[[nodiscard]] inline json minimax_config(model_shape const& s) {
  return {{"architectures", {"MiniMaxM2ForCausalLM"}},
          {"model_type", "minimax_m2"},
          {"hidden_act", "silu"},
          {"attn_type_list", std::vector<int>(static_cast<std::size_t>(s.layers), 1)},
          {"head_dim", s.head_dim},
          {"rotary_dim", s.rope_dim},
          {"num_key_value_heads", s.kv_heads},
          {"intermediate_size", s.expert_width},
          {"num_local_experts", s.experts},
          {"num_experts_per_tok", s.top_k},
          {"shared_intermediate_size", 0},
          {"scoring_func", "sigmoid"},
          {"use_routing_bias", true},
          {"use_qk_norm", true},
          {"qk_norm_type", "per_layer"},
          {"use_mtp", false},
          {"rms_norm_eps", 1e-6},
          {"rope_theta", 5000000}};
}

/// What Kimi K2 and K3 share.
[[nodiscard]] inline json latent_config(model_shape const& s) {
  return {{"num_key_value_heads", s.heads},
          {"q_lora_rank", s.q_lora > 0 ? json(s.q_lora) : json(nullptr)},
          {"kv_lora_rank", s.kv_lora},
          {"qk_nope_head_dim", s.nope_dim},
          {"qk_rope_head_dim", s.rope_dim},
          {"v_head_dim", s.value_dim},
          {"intermediate_size", s.dense_width},
          {"moe_intermediate_size", s.expert_width},
          {"first_k_dense_replace", s.dense_layers},
          {"moe_layer_freq", 1},
          {"topk_method", "noaux_tc"},
          {"topk_group", 1},
          {"routed_scaling_factor", s.weights_scale()},
          {"num_nextn_predict_layers", 0},
          {"rms_norm_eps", 1e-5}};
}

[[nodiscard]] inline json kimi_k2_config(model_shape const& s) {
  json config{{"architectures", {"DeepseekV3ForCausalLM"}},
              {"model_type", "kimi_k2"},
              {"hidden_act", "silu"},
              {"attention_bias", false},
              {"n_routed_experts", s.experts},
              {"num_experts_per_tok", s.top_k},
              {"n_shared_experts", s.shared_experts},
              {"n_group", 1},
              {"norm_topk_prob", true},
              {"scoring_func", "sigmoid"},
              {"rope_theta", 50000.0},
              {"rope_scaling",
               {{"type", "yarn"},
                {"factor", 64.0},
                {"original_max_position_embeddings", 4096},
                {"beta_fast", 1.0},
                {"beta_slow", 1.0},
                {"mscale", 1.0},
                {"mscale_all_dim", 1.0}}}};
  config.update(latent_config(s));
  return config;
}

/// Kimi-Linear and the text part of Kimi K3.
[[nodiscard]] inline json hybrid_config(model_shape const& s) {
  json full = json::array(), recurrent = json::array();
  for (int layer = 0; layer < s.layers; ++layer) {
    (s.is_full_attention(layer) ? full : recurrent).push_back(layer + 1);
  }
  json config{{"architectures", {"KimiLinearForCausalLM"}},
              {"model_type", "kimi_linear"},
              {"hidden_act", "silu"},
              {"mla_use_nope", true},
              {"linear_attn_config",
               {{"num_heads", s.heads},
                {"head_dim", s.head_dim},
                {"short_conv_kernel_size", 4},
                {"full_attn_layers", full},
                {"kda_layers", recurrent}}},
              {"num_experts", s.experts},
              {"num_experts_per_token", s.top_k},
              {"num_shared_experts", s.shared_experts},
              {"num_expert_group", 1},
              {"moe_renormalize", true},
              {"moe_router_activation_func", "sigmoid"},
              {"rope_scaling", nullptr}};
  config.update(latent_config(s));
  if (s.family != family::kimi_k3) { return config; }
  json const k3{{"hidden_act", "situ"},
                {"activation_situ_beta", 4.0},
                {"activation_situ_linear_beta", 25.0},
                {"attn_res_block_size", s.res_block},
                {"mla_use_output_gate", true},
                {"latent_moe_use_norm", true},
                {"routed_expert_hidden_size", s.latent}};
  config.update(k3);
  config["linear_attn_config"]["use_full_rank_gate"] = true;
  config["linear_attn_config"]["gate_lower_bound"] = -5.0;
  return config;
}

}  // namespace detail

/// config.json in the spelling of the published model.
[[nodiscard]] inline json config_of(model_shape const& shape, type_choice const& types) {
  json text = shape.family == family::llama        ? detail::llama_config(shape)
              : shape.family == family::minimax_m2 ? detail::minimax_config(shape)
              : shape.family == family::kimi_k2    ? detail::kimi_k2_config(shape)
                                                   : detail::hybrid_config(shape);
  auto const ids = ids_of(shape);
  json const common{{"hidden_size", shape.hidden},
                    {"num_hidden_layers", shape.layers},
                    {"num_attention_heads", shape.heads},
                    {"vocab_size", shape.vocab},
                    {"max_position_embeddings", shape.context},
                    {"tie_word_embeddings", false},
                    {"bos_token_id", ids.bos},
                    {"eos_token_id", shape.is_hybrid() ? ids.end_of_turn : ids.eos},
                    {"torch_dtype", "bfloat16"}};
  text.update(common);
  if (json const how = detail::quantisation(types); !how.is_null()) {
    text["quantization_config"] = how;
  }
  if (shape.family != family::kimi_k3) { return text; }
  return {{"architectures", {"KimiK3ForConditionalGeneration"}},
          {"model_type", "kimi_k3"},
          {"bos_token_id", ids.bos},
          {"eos_token_id", ids.end_of_turn},
          {"tie_word_embeddings", false},
          {"text_config", text}};
}

/// generation_config.json.
[[nodiscard]] inline json generation_config_of(model_shape const& shape) {
  auto const ids = ids_of(shape);
  json ends = json::array({ids.eos});
  if (ids.end_of_turn != ids.eos) { ends.push_back(ids.end_of_turn); }
  if (shape.is_hybrid()) { ends = json::array({ids.end_of_turn}); }
  return {{"bos_token_id", ids.bos}, {"eos_token_id", ends}};
}

}  // namespace terrace::synth
