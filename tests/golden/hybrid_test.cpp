// SPDX-License-Identifier: Apache-2.0
// Models with delta attention against plain loops, on random weights of both containers.
#include "models.hpp"
#include "support/made_model.hpp"
#include "support/plain_hybrid.hpp"
#include "support/running_model.hpp"
#include "support/scratch_folder.hpp"

#include <catch2/catch_test_macros.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace terrace::golden {
namespace {

TEST_CASE("Kimi K3 and Kimi-Linear give the logits of plain loops", "[golden]") {
  test::scratch_folder const folder;
  std::vector<std::int32_t> ids;
  for (int i = 0; i < 24; ++i) { ids.push_back((i * 131 + 7) % 1500); }
  for (auto const family : {synth::family::kimi_k3, synth::family::kimi_linear}) {
    for (bool const safetensors : {false, true}) {
      std::string const name{synth::name_of(family)};
      INFO(name << (safetensors ? ", safetensors" : ", GGUF"));
      auto const weights =
          make_model(family, folder.file(name + (safetensors ? "-folder" : "-file")), safetensors);
      running_model model{weights, {.context_tokens = 64, .prefill_chunk = 7}};
      plain_hybrid plain{model.catalog(), runner::read_decoder_config(model.catalog().meta())};
      CHECK(relative_distance(model.logits(ids), plain.logits(ids)) < 1e-4);
    }
  }
}

}  // namespace
}  // namespace terrace::golden
