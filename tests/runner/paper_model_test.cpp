// SPDX-License-Identifier: Apache-2.0
#include "paper_model.hpp"

#include "support/scratch_folder.hpp"

#include <terrace/core/error.hpp>

#include <catch2/catch_test_macros.hpp>

#include <cmath>
#include <cstdint>
#include <string>

using terrace::runner::paper_model;
using terrace::runner::read_paper_model;

namespace {

std::uint64_t as_is(std::uint64_t bytes) { return bytes; }

paper_model read(std::string const& config) {
  terrace::test::scratch_folder const folder;
  return read_paper_model(
      folder.write("config.json", config), {.context_tokens = 4096, .on_load = {}}, as_is);
}

// The published shapes of the three families; sizes as their makers state them.
std::string const llama_8b =
    R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096,
  "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
  "vocab_size": 128256, "max_position_embeddings": 131072, "rms_norm_eps": 1e-5, "rope_theta": 500000.0,
  "tie_word_embeddings": false, "torch_dtype": "bfloat16"})";

std::string const kimi_k2 = R"({"architectures": ["DeepseekV3ForCausalLM"], "model_type": "kimi_k2",
  "hidden_size": 7168, "intermediate_size": 18432, "moe_intermediate_size": 2048, "num_hidden_layers": 61,
  "num_attention_heads": 64, "num_key_value_heads": 64, "vocab_size": 163840, "max_position_embeddings": 131072,
  "rms_norm_eps": 1e-6, "rope_theta": 50000.0, "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128,
  "qk_rope_head_dim": 64, "v_head_dim": 128, "n_routed_experts": 384, "num_experts_per_tok": 8, "n_shared_experts": 1,
  "first_k_dense_replace": 1, "routed_scaling_factor": 2.827, "norm_topk_prob": true, "scoring_func": "sigmoid",
  "n_group": 1, "topk_group": 1, "torch_dtype": "bfloat16",
  "quantization_config": {"quant_method": "compressed-tensors", "format": "pack-quantized"}})";

/// Kimi K3 and Kimi-Linear share a text configuration.
std::string hybrid(std::string const& name, std::string const& rest, int layers, int heads) {
  std::string full;
  for (int layer = 4; layer < layers; layer += 4) { full += std::to_string(layer) + ", "; }
  return R"({"architectures": [")" + name + R"("], "text_config": {"num_hidden_layers": )" +
         std::to_string(layers) + R"(, "num_attention_heads": )" + std::to_string(heads) +
         R"(, "linear_attn_config": {"full_attn_layers": [)" + full + std::to_string(layers) +
         R"(], "num_heads": )" + std::to_string(heads) +
         R"(, "head_dim": 128, "short_conv_kernel_size": 4, "gate_lower_bound": -5.0},
  "vocab_size": 163840, "max_position_embeddings": 1048576, "rms_norm_eps": 1e-5, "first_k_dense_replace": 1,
  "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "mla_use_nope": true,
  "moe_router_activation_func": "sigmoid", "moe_renormalize": true, "top_k": 50, "dtype": "bfloat16", )" +
         rest + "}}";
}
std::string const kimi_k3 =
    hybrid("KimiK3ForConditionalGeneration",
           R"("hidden_size": 7168, "intermediate_size": 33792, "q_lora_rank": 1536,
  "num_experts": 896, "num_experts_per_token": 16, "num_shared_experts": 2, "moe_intermediate_size": 3072,
  "routed_expert_hidden_size": 3584, "latent_moe_use_norm": true, "mla_use_output_gate": true,
  "hidden_act": "situ", "activation_situ_beta": 4.0, "activation_situ_linear_beta": 25.0,
  "attn_res_block_size": 12, "routed_scaling_factor": 1.0,
  "quantization_config": {"quant_method": "compressed-tensors", "format": "mxfp4-pack-quantized"})",
           93,
           96);
std::string const kimi_linear =
    hybrid("KimiLinearForCausalLM",
           R"("hidden_size": 2304, "intermediate_size": 9216, "q_lora_rank": null,
  "num_experts": 256, "num_experts_per_token": 8, "num_shared_experts": 1, "moe_intermediate_size": 1024,
  "hidden_act": "silu", "routed_scaling_factor": 2.446)",
           27,
           32);

bool near(double value, double expected, double share) {
  return std::abs(value / expected - 1) < share;
}

}  // namespace

TEST_CASE("a dense model's parameters and bytes follow from its config", "[runner]") {
  auto const model = read(llama_8b);
  CHECK(near(static_cast<double>(model.dense_parameters), 8.03e9, 0.001));
  CHECK(model.expert_parameters == 0);
  CHECK(near(static_cast<double>(model.needs.dense_bytes()), 2 * 8.03e9, 0.001));
  // 32 layers of 8 heads of 128 for keys and values, two bytes each, 4096 tokens.
  CHECK(model.needs.state_bytes == std::uint64_t{32} * 2 * 8 * 128 * 2 * 4096);
}

TEST_CASE("a mixture's experts are counted at their own width", "[runner]") {
  auto const model = read(kimi_k2);
  CHECK(
      near(static_cast<double>(model.dense_parameters + model.expert_parameters), 1.026e12, 0.01));
  CHECK(near(static_cast<double>(model.active_parameters), 32e9, 0.03));
  CHECK(model.needs.all_expert_blocks() == 60 * 384);
  CHECK(near(static_cast<double>(model.needs.all_expert_bytes()), 571e9, 0.01));
  CHECK(model.needs.state_bytes == std::uint64_t{61} * 576 * 2 * 4096);
}

TEST_CASE("Kimi K3's trunk, experts and state are counted as its files have them", "[runner]") {
  auto const model = read(kimi_k3);
  // 56.7 B parameters of trunk in BF16, and experts of 17,547,264 bytes.
  CHECK(near(static_cast<double>(model.dense_parameters), 56.7e9, 0.002));
  CHECK(near(static_cast<double>(model.needs.dense_bytes()), 113.5e9, 0.002));
  CHECK(model.needs.all_expert_bytes() == std::uint64_t{92} * 896 * 17'547'264);
  CHECK(near(static_cast<double>(model.active_parameters), 104e9, 0.01));
  // 69 layers of float32 state: 96 matrices of 128 x 128 and three times three inputs of 12,288.
  std::uint64_t const recurrent = std::uint64_t{69} * 4 * (96 * 128 * 128 + 9 * 12'288);
  CHECK(model.needs.recurrent_bytes == recurrent);
  CHECK(model.needs.state_bytes == recurrent + std::uint64_t{24} * 576 * 2 * 4096);
}

TEST_CASE("Kimi-Linear's parameters follow from its config", "[runner]") {
  auto const model = read(kimi_linear);
  CHECK(near(static_cast<double>(model.dense_parameters + model.expert_parameters), 49.1e9, 0.01));
  CHECK(near(static_cast<double>(model.active_parameters), 3e9, 0.05));
  CHECK(model.needs.recurrent_bytes == std::uint64_t{20} * 4 * (32 * 128 * 128 + 9 * 4096));
}

TEST_CASE("a config that says too little or something unknown is refused", "[runner]") {
  CHECK_THROWS_AS(read("{}"), terrace::format_error);
  CHECK_THROWS_AS(read(R"({"model_type": "gpt2"})"), terrace::not_supported);
  CHECK_THROWS_AS(read("{"), terrace::format_error);
}
