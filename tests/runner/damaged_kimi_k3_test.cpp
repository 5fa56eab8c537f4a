// SPDX-License-Identifier: Apache-2.0
// Files of Kimi K3 that contradict themselves: one sentence and exit status 1, never a crash or
// nonsense.
#include "golden/support/changed_gguf.hpp"
#include "golden/support/changed_safetensors.hpp"
#include "golden/support/made_model.hpp"
#include "support/program.hpp"
#include "support/scratch_folder.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace terrace::runner {
namespace {

using golden::copied_safetensor;
using golden::copied_tensor;
using json = nlohmann::ordered_json;

/// A model as it should be, in both containers, and what becomes of changed copies of it.
class subject {
 public:
  void refuse(golden::safetensors_change const& change, std::string const& part) const {
    check(golden::write_changed(folder_model_, scratch_.file("changed"), change), part);
  }
  void refuse(golden::gguf_change const& change, std::string const& part) const {
    check(golden::write_changed(file_model_, scratch_.file("changed.gguf"), change), part);
  }
  /// Changes the tensors of the folder whose names end so.
  template <class Edit>
  void refuse_tensor(std::string const& ending, std::string const& part, Edit&& edit) const {
    bool found = false;
    refuse(golden::safetensors_change{.tensor =
                                          [&](copied_safetensor& tensor) {
                                            if (!tensor.name.ends_with(ending)) { return; }
                                            found = true;
                                            edit(tensor);
                                          }},
           part);
    CHECK(found);
  }
  void refuse_config(std::string const& part, std::function<void(json&)> edit) const {
    refuse(golden::safetensors_change{.config = std::move(edit)}, part);
  }

  [[nodiscard]] static test::outcome run(std::filesystem::path const& model) {
    return test::program{
        TERRACE_KIMI, {"-m", model.string(), "--prompt-ids", "1,2,3", "-n", "2", "--dram", "1GiB"}}
        .run();
  }
  [[nodiscard]] std::filesystem::path const& folder_model() const { return folder_model_; }
  [[nodiscard]] std::filesystem::path const& file_model() const { return file_model_; }

 private:
  static void check(std::filesystem::path const& model, std::string const& part) {
    auto const result = run(model);
    INFO(result.err);
    CHECK(result.status == 1);
    CHECK(result.out.empty());
    CHECK(std::count(result.err.begin(), result.err.end(), '\n') == 1);
    CHECK_THAT(result.err, Catch::Matchers::ContainsSubstring(part));
  }

  terrace::test::scratch_folder scratch_;
  std::filesystem::path folder_model_ =
      golden::make_model(synth::family::kimi_k3, scratch_.file("folder"), true);
  std::filesystem::path file_model_ =
      golden::make_model(synth::family::kimi_k3, scratch_.file("file"));
};

json& text_of(json& config) {
  return config.contains("text_config") ? config["text_config"] : config;
}

TEST_CASE("a made-up Kimi K3 runs from both containers", "[runner]") {
  subject const model;
  CHECK(subject::run(model.folder_model()).status == 0);
  CHECK(subject::run(model.file_model()).status == 0);
}

TEST_CASE("Kimi K3: packed experts of another group size or without scales are refused",
          "[runner]") {
  subject const model;
  std::string const scale = "layers.2.block_sparse_moe.experts.3.w1.weight_scale";
  model.refuse_tensor(scale, "one scale per 32 columns", [](copied_safetensor& tensor) {
    tensor.reshape({tensor.shape[0], tensor.shape[1] * 2});
  });
  model.refuse_tensor(scale, "one scale per 32 columns", [](copied_safetensor& tensor) {
    tensor.reshape({tensor.shape[0], tensor.shape[1] / 2});
  });
  model.refuse_tensor(
      scale, "no `weight_scale`", [](copied_safetensor& tensor) { tensor.bytes.clear(); });
  model.refuse_config("`group_size` 16", [](json& config) {
    text_of(config)["quantization_config"]["config_groups"]["group_0"]["weights"]["group_size"] =
        16;
  });
}

TEST_CASE("Kimi K3: decay vectors of another length are refused", "[runner]") {
  subject const model;  // 4 heads of 64: A_log has 64 values, dt_bias 256
  for (std::uint64_t const length : {3U, 4U, 63U, 128U}) {
    model.refuse_tensor("layers.1.self_attn.A_log",
                        std::to_string(length) + " values",
                        [&](copied_safetensor& tensor) { tensor.reshape({length}); });
  }
  for (std::uint64_t const length : {4U, 320U}) {
    model.refuse_tensor("layers.1.self_attn.dt_bias",
                        "ssm_dt.bias",
                        [&](copied_safetensor& tensor) { tensor.reshape({length}); });
  }
  model.refuse(golden::gguf_change{.tensor =
                                       [](copied_tensor& tensor) {
                                         if (tensor.name != "blk.1.ssm_a") { return; }
                                         tensor.dims = {64};
                                         tensor.bytes.resize(64 * sizeof(float));
                                       }},
               "`blk.1.ssm_a` has 64 values");
}

TEST_CASE("Kimi K3: a pattern of layers that disagrees with the tensors is refused", "[runner]") {
  subject const model;  // full attention in layers 4 and 5, counted from 1
  auto const pattern = [](std::vector<int> const& full, std::vector<int> const& delta) {
    return [=](json& config) {
      auto& linear = text_of(config)["linear_attn_config"];
      linear["full_attn_layers"] = full;
      linear["kda_layers"] = delta;
    };
  };
  model.refuse_config("layer 2 has the tensors of delta attention", pattern({3, 4, 5}, {1, 2}));
  model.refuse_config("layer 3 has the tensors of full attention", pattern({5}, {1, 2, 3, 4}));
  model.refuse_config("`linear_attn_config.kda_layers`", pattern({4, 5}, {1, 2}));
  model.refuse_config("`linear_attn_config.kda_layers`", pattern({4, 5}, {1, 2, 3, 4}));
  model.refuse_config("names layer 6", pattern({4, 6}, {1, 2, 3, 5}));
  model.refuse(golden::gguf_change{.meta =
                                       [](metadata& meta) {
                                         meta.set("kimi-k3.attention.head_count_kv",
                                                  std::vector<std::uint64_t>{0, 0, 1, 1, 1});
                                       }},
               "layer 2 has the tensors of delta attention");
  model.refuse(
      golden::gguf_change{
          .meta =
              [](metadata& meta) {
                meta.set("kimi-k3.attention.head_count_kv", std::vector<std::uint64_t>{0, 0, 0, 1});
              }},
      "has 4 numbers where 5 layers");
}

TEST_CASE("Kimi K3: a number of experts that disagrees with the router is refused", "[runner]") {
  subject const model;  // 16 experts
  auto const shorter = [](copied_safetensor& tensor) {
    auto shape = tensor.shape;
    shape[0] = 8;
    tensor.reshape(shape);
  };
  model.refuse_tensor("layers.2.block_sparse_moe.gate.weight", "ffn_gate_inp", shorter);
  model.refuse_tensor(
      "layers.2.block_sparse_moe.gate.e_score_correction_bias", "exp_probs_b", shorter);
  model.refuse_config("16 experts where the metadata says 8",
                      [](json& config) { text_of(config)["num_experts"] = 8; });
  model.refuse_config("experts",
                      [](json& config) { text_of(config)["num_experts_per_token"] = 17; });
  model.refuse(golden::gguf_change{.tensor =
                                       [](copied_tensor& tensor) {
                                         if (!tensor.name.ends_with("2.exp_probs_b.bias")) {
                                           return;
                                         }
                                         tensor.dims = {8};
                                         tensor.bytes.resize(8 * sizeof(float));
                                       }},
               "exp_probs_b");
}

TEST_CASE(
    "Kimi K3: parts of the residual bank and of the latent mixture that are missing or of "
    "another width are refused",
    "[runner]") {
  subject const model;
  auto const gone = [](copied_safetensor& tensor) { tensor.bytes.clear(); };
  model.refuse_tensor("layers.1.mlp_res_proj.weight", "ffn_res_proj", gone);
  model.refuse_tensor("output_attn_res_norm.weight", "output_res_norm", gone);
  model.refuse_tensor("layers.1.block_sparse_moe.routed_expert_norm.weight",
                      "ffn_routed_norm",
                      [](copied_safetensor& tensor) { tensor.reshape({256}); });
  model.refuse_config("`blk.1.ffn_routed_down.weight` has",
                      [](json& config) { text_of(config)["routed_expert_hidden_size"] = 64; });
}

}  // namespace
}  // namespace terrace::runner
