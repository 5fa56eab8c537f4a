// SPDX-License-Identifier: Apache-2.0
// What makes a Kimi K3 of a model: each part is changed in a copy of the file, and the logits must
// follow, or, for the norm behind the experts, must not.
#include "support/changed_gguf.hpp"
#include "support/made_model.hpp"
#include "support/running_model.hpp"
#include "support/scratch_folder.hpp"

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace terrace::golden {
namespace {

std::vector<float> logits_of(std::filesystem::path const& weights) {
  std::vector<std::int32_t> ids;
  for (int i = 0; i < 40; ++i) { ids.push_back((i * 131 + 7) % 1500); }
  running_model model{weights, {.context_tokens = 64}};
  return model.logits(ids);
}

/// A Kimi K3 of random weights, and how far changes move its logits.
class subject {
 public:
  subject()
      : weights_{make_model(synth::family::kimi_k3, folder_.file("made"))},
        logits_{logits_of(weights_)} {}

  [[nodiscard]] double moved_by(gguf_change const& change) const {
    return relative_distance(logits_of(write_changed(weights_, folder_.file("changed"), change)),
                             logits_);
  }
  [[nodiscard]] double moved_by_key(std::string const& key, metadata_value value) const {
    return moved_by({.meta = [&](metadata& meta) {
      REQUIRE(meta.contains(key));
      meta.set(key, std::move(value));
    }});
  }
  /// `edit(tensor)` for every tensor whose name ends so.
  template <class Edit>
  [[nodiscard]] double moved_by_tensors(std::string const& ending, Edit&& edit) const {
    int count = 0;
    double const distance = moved_by({.tensor = [&](copied_tensor& tensor) {
      if (!tensor.name.ends_with(ending)) { return; }
      ++count;
      edit(tensor);
    }});
    CHECK(count > 0);
    return distance;
  }

 private:
  test::scratch_folder folder_;
  std::filesystem::path weights_;
  std::vector<float> logits_;
};

void clear(copied_tensor& tensor) {
  std::fill(tensor.bytes.begin(), tensor.bytes.end(), std::byte{0});
}

constexpr double seen = 1e-3;  ///< rounding stays below 1e-5

TEST_CASE("Kimi K3: what the file says of a feature shows in the logits", "[golden]") {
  subject const model;
  SECTION("the output gates of both kinds of attention") {
    CHECK(model.moved_by_tensors(".attn_gate.weight", clear) > seen);
    CHECK(model.moved_by_tensors(".ssm_g.weight", clear) > seen);
  }
  SECTION("the residual bank: when sums are stored, and how they are weighed before each part") {
    CHECK(model.moved_by_key("kimi-k3.attn_res.block_size", std::uint64_t{3}) > seen);
    for (std::string const point : {".attn_res_score.weight", ".ffn_res_score.weight"}) {
      INFO(point);
      CHECK(model.moved_by_tensors(point, clear) > seen);
    }
    CHECK(model.moved_by_tensors("output_res_score.weight", clear) > seen);
  }
  SECTION("the norm behind the routed experts, which takes their scale away") {
    auto const double_experts = [](copied_tensor& tensor) {
      REQUIRE(tensor.type == quant_type::mxfp4);
      for (std::size_t at = 0; at < tensor.bytes.size(); at += 17) {  // the exponent of each block
        tensor.bytes[at] = std::byte(static_cast<unsigned>(tensor.bytes[at]) + 1);
      }
    };
    CHECK(model.moved_by_tensors(".ffn_down_exps.weight", double_experts) < 1e-4);
    auto const halve = [](copied_tensor& tensor) {
      for (float& one : tensor.floats()) { one /= 2; }
    };
    CHECK(model.moved_by_tensors(".ffn_routed_norm.weight", halve) > seen);
  }
  SECTION("the bound of the decay") {
    CHECK(model.moved_by_key("kimi-k3.kda.gate_lower_bound", -4.0) > seen);
  }
  SECTION("the order of the taps of a convolution") {
    for (std::string const which : {"q", "k", "v"}) {
      INFO(which);
      auto const reverse = [](copied_tensor& tensor) {
        auto const taps = tensor.floats();
        for (std::size_t at = 0; at < taps.size(); at += 4) {
          std::reverse(taps.begin() + static_cast<std::ptrdiff_t>(at),
                       taps.begin() + static_cast<std::ptrdiff_t>(at + 4));
        }
      };
      CHECK(model.moved_by_tensors(".ssm_conv1d_" + which + ".weight", reverse) > seen);
    }
  }
  SECTION("both saturations of SiTU") {
    CHECK(model.moved_by_key("kimi-k3.activation.situ_beta", 1e6) > seen);
    CHECK(model.moved_by_key("kimi-k3.activation.situ_linear_beta", 1e6) > 0);
  }
}

}  // namespace
}  // namespace terrace::golden
