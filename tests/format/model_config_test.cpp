// SPDX-License-Identifier: Apache-2.0
#include "format/support.hpp"

#include <terrace/format/model_config.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <cstdint>
#include <string>
#include <vector>

using Catch::Matchers::ContainsSubstring;
using format_test::refusal;
using format_test::temporary_folder;
using format_test::write_file;
using json = nlohmann::json;
using terrace::metadata;

namespace {

metadata translate(json const& config, json const& generation = nullptr) {
  temporary_folder const folder;
  write_file(folder / "config.json", config.dump());
  if (!generation.is_null()) { write_file(folder / "generation_config.json", generation.dump()); }
  return terrace::format::read_model_config(folder.path());
}
template <class Error = terrace::format_error>
std::string refusal_of(json const& config) {
  return refusal<Error>([&] { (void)translate(config); });
}

json llama() {
  return {{"architectures", {"LlamaForCausalLM"}},
          {"model_type", "llama"},
          {"hidden_act", "silu"},
          {"hidden_size", 64},
          {"intermediate_size", 128},
          {"max_position_embeddings", 2048},
          {"num_attention_heads", 4},
          {"num_hidden_layers", 2},
          {"num_key_value_heads", 2},
          {"rms_norm_eps", 1e-5},
          {"rope_theta", 500000.0},
          {"vocab_size", 100},
          {"bos_token_id", 1},
          {"eos_token_id", {2, 3}}};
}
json minimax() {
  json config = llama();
  config["architectures"] = {"MiniMaxM2ForCausalLM"};
  config["model_type"] = "minimax_m2";
  config["head_dim"] = 32;
  config["rotary_dim"] = 16;
  config["num_local_experts"] = 8;
  config["num_experts_per_tok"] = 2;
  config["scoring_func"] = "sigmoid";
  return config;
}
json kimi() {
  json config = llama();
  config["architectures"] = {"DeepseekV3ForCausalLM"};
  config["model_type"] = "kimi_k2";
  config["kv_lora_rank"] = 64;
  config["q_lora_rank"] = 96;
  config["qk_nope_head_dim"] = 32;
  config["qk_rope_head_dim"] = 16;
  config["v_head_dim"] = 24;
  config["n_routed_experts"] = 16;
  config["n_shared_experts"] = 1;
  config["num_experts_per_tok"] = 6;
  config["moe_intermediate_size"] = 40;
  config["first_k_dense_replace"] = 1;
  config["routed_scaling_factor"] = 2.827;
  config["norm_topk_prob"] = true;
  config["n_group"] = 1;
  config["topk_group"] = 1;
  config["rope_scaling"] = {{"type", "yarn"},
                            {"factor", 64.0},
                            {"beta_fast", 1.0},
                            {"beta_slow", 1.0},
                            {"mscale", 1.0},
                            {"mscale_all_dim", 1.0},
                            {"original_max_position_embeddings", 4096}};
  return config;
}

json kimi_k3() {
  json text = llama();
  text["architectures"] = {"KimiLinearForCausalLM"};
  text["model_type"] = "kimi_linear";
  text["num_hidden_layers"] = 5;
  text["hidden_act"] = "situ";
  text["kv_lora_rank"] = 64;
  text["q_lora_rank"] = 96;
  text["qk_nope_head_dim"] = 32;
  text["qk_rope_head_dim"] = 16;
  text["v_head_dim"] = 24;
  text["num_experts"] = 16;
  text["num_experts_per_token"] = 6;
  text["num_shared_experts"] = 2;
  text["moe_intermediate_size"] = 40;
  text["routed_expert_hidden_size"] = 32;
  text["attn_res_block_size"] = 2;
  text["activation_situ_beta"] = 4.0;
  text["activation_situ_linear_beta"] = 25.0;
  text["top_k"] = 50;
  text["linear_attn_config"] = {{"full_attn_layers", {4, 5}},
                                {"gate_lower_bound", -5.0},
                                {"head_dim", 16},
                                {"num_heads", 4},
                                {"short_conv_kernel_size", 4}};
  return {{"architectures", {"KimiK3ForConditionalGeneration"}},
          {"model_type", "kimi_k3"},
          {"text_config", text}};
}

}  // namespace

TEST_CASE("a Llama config becomes GGUF keys", "[format]") {
  auto const meta = translate(llama());
  CHECK(meta.get_string("general.architecture") == "llama");
  CHECK(meta.get_count("llama.block_count") == 2);
  CHECK(meta.get_count("llama.embedding_length") == 64);
  CHECK(meta.get_count("llama.feed_forward_length") == 128);
  CHECK(meta.get_count("llama.attention.head_count") == 4);
  CHECK(meta.get_count("llama.attention.head_count_kv") == 2);
  CHECK(meta.get_count("llama.attention.key_length") == 16);
  CHECK(meta.get_count("llama.attention.value_length") == 16);
  CHECK(meta.get_count("llama.rope.dimension_count") == 16);
  CHECK(meta.get_count("llama.vocab_size") == 100);
  CHECK(meta.get_count("llama.context_length") == 2048);
  CHECK(meta.get_number("llama.rope.freq_base") == 500000.0);
  CHECK(meta.get_number("llama.attention.layer_norm_rms_epsilon") == 1e-5);
  CHECK_FALSE(meta.contains("llama.rope.scaling.type"));
  CHECK(meta.try_integers("tokenizer.ggml.eos_token_ids") == std::vector<std::int64_t>{2, 3});
  CHECK(meta.get_unsigned("tokenizer.ggml.bos_token_id") == 1);
}

TEST_CASE("rope scaling is read in both spellings", "[format]") {
  json config = llama();
  json scaling = {{"rope_type", "llama3"},
                  {"factor", 8.0},
                  {"low_freq_factor", 1.0},
                  {"high_freq_factor", 4.0},
                  {"original_max_position_embeddings", 8192}};
  SECTION("rope_scaling and rope_theta") { config["rope_scaling"] = scaling; }
  SECTION("rope_parameters with everything") {
    config.erase("rope_theta");
    scaling["rope_theta"] = 500000.0;
    config["rope_parameters"] = scaling;
  }
  auto const meta = translate(config);
  CHECK(meta.get_string("llama.rope.scaling.type") == "llama3");
  CHECK(meta.get_number("llama.rope.scaling.factor") == 8.0);
  CHECK(meta.get_number("llama.rope.scaling.low_freq_factor") == 1.0);
  CHECK(meta.get_number("llama.rope.scaling.high_freq_factor") == 4.0);
  CHECK(meta.get_count("llama.rope.scaling.original_context_length") == 8192);
  CHECK(meta.get_number("llama.rope.freq_base") == 500000.0);
}

TEST_CASE("default and absent rope scaling leave no scaling keys", "[format]") {
  json config = llama();
  config["rope_scaling"] = GENERATE(json(nullptr), json{{"rope_type", "default"}});
  CHECK_FALSE(translate(config).contains("llama.rope.scaling.type"));
}

TEST_CASE("rope of one kind without its numbers is refused by the missing key", "[format]") {
  json config = llama();
  config["rope_scaling"] = {
      {"rope_type", "llama3"}, {"factor", 8.0}, {"original_max_position_embeddings", 8192}};
  CHECK_THAT(refusal_of(config), ContainsSubstring("`rope_scaling.low_freq_factor` is missing"));
  config["rope_scaling"].erase("factor");
  CHECK_THAT(refusal_of(config), ContainsSubstring("`rope_scaling.factor` is missing"));
}

TEST_CASE("a MiniMax-M2 config rotates what rotary_dim says", "[format]") {
  auto const meta = translate(minimax());
  CHECK(meta.get_string("general.architecture") == "minimax-m2");
  CHECK(meta.get_count("minimax-m2.attention.key_length") == 32);
  CHECK(meta.get_count("minimax-m2.rope.dimension_count") == 16);
  CHECK(meta.get_count("minimax-m2.expert_count") == 8);
  CHECK(meta.get_count("minimax-m2.expert_used_count") == 2);
  CHECK(meta.get_count("minimax-m2.expert_feed_forward_length") == 128);
  CHECK(meta.get_count("minimax-m2.expert_gating_func") == 2);

  json v5 = minimax();
  v5.erase("rotary_dim");
  v5.erase("rope_theta");
  v5["rope_parameters"] = {
      {"rope_type", "default"}, {"rope_theta", 5000000}, {"partial_rotary_factor", 0.5}};
  CHECK(translate(v5).get_count("minimax-m2.rope.dimension_count") == 16);
}

TEST_CASE("a Kimi K2 config becomes deepseek2 keys", "[format]") {
  json config = kimi();
  if (GENERATE(false, true)) {  // Kimi K2.5 puts the text model inside
    config = {{"architectures", {"KimiK25ForConditionalGeneration"}},
              {"model_type", "kimi_k25"},
              {"eos_token_id", 2},
              {"text_config", kimi()}};
  }
  auto const meta = translate(config);
  CHECK(meta.get_string("general.architecture") == "deepseek2");
  CHECK(meta.get_count("deepseek2.attention.head_count_kv") == 1);
  CHECK(meta.get_count("deepseek2.attention.key_length") == 80);
  CHECK(meta.get_count("deepseek2.attention.value_length") == 64);
  CHECK(meta.get_count("deepseek2.attention.key_length_mla") == 48);
  CHECK(meta.get_count("deepseek2.attention.value_length_mla") == 24);
  CHECK(meta.get_count("deepseek2.attention.q_lora_rank") == 96);
  CHECK(meta.get_count("deepseek2.rope.dimension_count") == 16);
  CHECK(meta.get_count("deepseek2.expert_count") == 16);
  CHECK(meta.get_count("deepseek2.expert_used_count") == 6);
  CHECK(meta.get_count("deepseek2.expert_shared_count") == 1);
  CHECK(meta.get_count("deepseek2.expert_feed_forward_length") == 40);
  CHECK(meta.get_count("deepseek2.leading_dense_block_count") == 1);
  CHECK(meta.get_number("deepseek2.expert_weights_scale") == 2.827);
  CHECK(meta.try_bool("deepseek2.expert_weights_norm") == true);
  CHECK(meta.get_string("deepseek2.rope.scaling.type") == "yarn");
  CHECK(meta.get_number("deepseek2.rope.scaling.yarn_log_multiplier") == 0.1);
  CHECK(meta.get_number("deepseek2.rope.scaling.yarn_beta_fast") == 1.0);
}

TEST_CASE("a null q_lora_rank leaves its key out", "[format]") {
  json config = kimi();
  config["q_lora_rank"] = nullptr;
  CHECK_FALSE(translate(config).contains("deepseek2.attention.q_lora_rank"));
}

TEST_CASE("end ids of both files count, and the start id of config.json wins", "[format]") {
  json config = llama();
  config["eos_token_id"] = 2;
  auto const meta = translate(config, {{"eos_token_id", {5, 2}}, {"bos_token_id", 9}});
  CHECK(meta.try_integers("tokenizer.ggml.eos_token_ids") == std::vector<std::int64_t>{2, 5});
  CHECK(meta.get_unsigned("tokenizer.ggml.bos_token_id") == 1);
  config.erase("bos_token_id");
  CHECK(translate(config, {{"bos_token_id", 9}}).get_unsigned("tokenizer.ggml.bos_token_id") == 9);
}

TEST_CASE("a missing key is named", "[format]") {
  std::string const key = GENERATE(
      "num_hidden_layers", "hidden_size", "vocab_size", "num_attention_heads", "rms_norm_eps");
  json config = llama();
  config.erase(key);
  CHECK_THAT(refusal_of(config), ContainsSubstring("`" + key + "` is missing"));
  std::string const mla =
      GENERATE("kv_lora_rank", "qk_rope_head_dim", "v_head_dim", "n_routed_experts", "rope_theta");
  config = kimi();
  config.erase(mla);
  CHECK_THAT(refusal_of(config), ContainsSubstring("`" + mla + "` is missing"));
}

TEST_CASE("values of another kind than expected are refused", "[format]") {
  json config = llama();
  config["hidden_size"] = GENERATE(json(-1),
                                   json(1.5),
                                   json(std::uint64_t{1} << 31U),
                                   json(~std::uint64_t{0}),
                                   json("64"),
                                   json::array({64}),
                                   json(true));
  CHECK_THAT(refusal_of(config), ContainsSubstring("`hidden_size` is not a whole number"));
  config = llama();
  config["rope_scaling"] = "llama3";
  CHECK_THAT(refusal_of(config), ContainsSubstring("`rope_scaling` is not an object"));
  config = llama();
  config["eos_token_id"] = json::array({"</s>"});
  CHECK_THAT(refusal_of(config), ContainsSubstring("`eos_token_id`"));
  CHECK_THAT(refusal_of(json::array()), ContainsSubstring("not a JSON object"));
  CHECK_THAT(refusal_of({{"vocab_size", 1}}), ContainsSubstring("not a model configuration"));
}

TEST_CASE("settings that would change the arithmetic are refused", "[format]") {
  auto const with = [](json config, char const* key, json const& value) {
    config[key] = value;
    return refusal_of<terrace::not_supported>(config);
  };
  CHECK_THAT(with(llama(), "hidden_act", "gelu"), ContainsSubstring("`hidden_act`"));
  CHECK_THAT(with(llama(), "attention_bias", true), ContainsSubstring("`attention_bias`"));
  CHECK_THAT(with(minimax(), "qk_norm_type", "per_head"), ContainsSubstring("`qk_norm_type`"));
  CHECK_THAT(with(minimax(), "shared_intermediate_size", 64),
             ContainsSubstring("`shared_intermediate_size`"));
  CHECK_THAT(with(minimax(), "attn_type_list", {1, 0}), ContainsSubstring("attn_type_list"));
  CHECK_THAT(with(kimi(), "moe_layer_freq", 2), ContainsSubstring("`moe_layer_freq`"));
  CHECK_THAT(with(kimi(), "scoring_func", "tanh"), ContainsSubstring("`scoring_func`"));
  json config = kimi();
  config["rope_scaling"]["mscale"] = 0.5;
  CHECK_THAT(refusal_of<terrace::not_supported>(config), ContainsSubstring("mscale"));
}

TEST_CASE("an architecture without a translation keeps its own name and no keys", "[format]") {
  auto const meta = translate({{"architectures", {"GPT2LMHeadModel"}}, {"model_type", "gpt2"}});
  CHECK(meta.get_string("general.architecture") == "gpt2");
}

TEST_CASE("a Kimi K3 config becomes GGUF keys, full attention layers counted from 1", "[format]") {
  auto const meta = translate(kimi_k3());
  CHECK(meta.get_string("general.architecture") == "kimi-k3");
  CHECK(meta.try_integers("kimi-k3.attention.head_count_kv") ==
        std::vector<std::int64_t>{0, 0, 0, 1, 1});
  CHECK(meta.get_count("kimi-k3.expert_count") == 16);
  CHECK(meta.get_count("kimi-k3.expert_used_count") == 6);  // and not `top_k`
  CHECK(meta.get_count("kimi-k3.expert_latent_length") == 32);
  CHECK(meta.get_count("kimi-k3.expert_shared_count") == 2);
  CHECK(meta.get_count("kimi-k3.attn_res.block_size") == 2);
  CHECK(meta.get_count("kimi-k3.kda.head_dim") == 16);
  CHECK(meta.get_count("kimi-k3.ssm.conv_kernel") == 4);
  CHECK(meta.get_number("kimi-k3.kda.gate_lower_bound") == -5.0);
  CHECK(meta.get_number("kimi-k3.activation.situ_beta") == 4.0);
  CHECK(meta.get_number("kimi-k3.activation.situ_linear_beta") == 25.0);
  CHECK(meta.get_count("kimi-k3.attention.key_length_mla") == 48);
  CHECK(meta.get_count("kimi-k3.attention.value_length") == 64);
  CHECK_FALSE(meta.contains("kimi-k3.rope.scaling.type"));
}

TEST_CASE("a Kimi K3 config that cannot be computed is refused by its key", "[format]") {
  json config = kimi_k3();
  json& text = config["text_config"];
  SECTION("layers are counted from 1") {
    text["linear_attn_config"]["full_attn_layers"] = {0, 4};
    CHECK_THAT(refusal_of(config), ContainsSubstring("names layer 0 of a model of 5 layers"));
  }
  SECTION("a layer behind the last") {
    text["linear_attn_config"]["full_attn_layers"] = {6};
    CHECK_THAT(refusal_of(config), ContainsSubstring("names layer 6"));
  }
  SECTION("no bound of the decay") {
    text["linear_attn_config"].erase("gate_lower_bound");
    CHECK_THAT(refusal_of(config), ContainsSubstring("`linear_attn_config.gate_lower_bound`"));
  }
  SECTION("another activation") {
    text["hidden_act"] = "silu";
    CHECK_THAT(refusal_of<terrace::not_supported>(config), ContainsSubstring("`hidden_act`"));
  }
  SECTION("latent attention with rotation") {
    text["mla_use_nope"] = false;
    CHECK_THAT(refusal_of<terrace::not_supported>(config), ContainsSubstring("`mla_use_nope`"));
  }
  SECTION("another number of recurrent heads") {
    text["linear_attn_config"]["num_heads"] = 8;
    CHECK_THAT(refusal_of<terrace::not_supported>(config),
               ContainsSubstring("`linear_attn_config.num_heads`"));
  }
}
