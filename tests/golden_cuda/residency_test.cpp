// SPDX-License-Identifier: Apache-2.0
// Logits of the cuda backend do not depend on where weights live: byte for byte, whatever the
// chain, its sizes and its policies.
#include "support/comparison.hpp"
#include "support/cuda_machine.hpp"
#include "support/golden_models.hpp"
#include "support/running_model.hpp"
#include "support/scratch_folder.hpp"

#include <catch2/catch_template_test_macros.hpp>
#include <catch2/catch_test_macros.hpp>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace terrace::golden {
namespace {

using cap = std::optional<runner::size_request> runner::chain_options::*;

/// A chain and the cap of its fastest tier.
struct chain_case {
  std::string name;
  cap fastest;
};
std::vector<chain_case> all_chains() {
  using runner::chain_options;
  return {{"vram-nvme", &chain_options::vram},
          {"vram-dram-nvme", &chain_options::vram},
          {"vram-pinned-nvme", &chain_options::vram},
          {"vram-pmem-nvme", &chain_options::vram},
          {"pinned-nvme", &chain_options::pinned},
          {"unified-nvme", &chain_options::unified},
          {"unified-pinned-nvme", &chain_options::unified}};
}

/// Short, for the emulated runtime; still longer than a page of sequence state.
setup on_device(numerics mode) {
  return {.backend = runtime::compute_backend::cuda,
          .mode = mode,
          .context_tokens = 64,
          .prompt_tokens = 18,
          .decoded = 3,
          .chain = {.name = "vram-nvme"}};
}

void check_chains(comparison& same,
                  std::vector<chain_case> const& chains,
                  std::filesystem::path const& scratch) {
  for (auto const& one : chains) {
    auto const chain = [&](setup& how) {
      how.chain.name = one.name;
      if (one.name == "vram-pmem-nvme") {
        how.chain.pmem = runner::sized_path::parse((scratch / "pmem").string() + ":64MiB");
      }
    };
    auto const least = same.least(one.fastest, chain);
    auto const capped = same.check(one.name + " at the smallest cap", [&](setup& how) {
      chain(how);
      how.chain.*one.fastest = least;
    });
    CHECK(capped.evictions > 0);
  }
}

void check_experts(comparison& same) {
  if (same.needs().experts == 0) { return; }
  // Read over the link where they lie, or for each use.
  for (std::string const rules : {"_exps=pinned:pin", "_exps=nvme"}) {
    same.check(rules, [&](setup& how) {
      how.chain.name = "vram-pinned-nvme";
      how.chain.place = {rules};
    });
  }
  auto const guessing = same.check("few experts, some read ahead", [&](setup& how) {
    how.chain.name = "vram-pinned-nvme";
    how.chain.evict = "lru";
    how.chain.prefetch = "gate_lookahead";
    how.chain.experts = runner::slot_request::parse("20%");
  });
  CHECK(guessing.evictions > 0);
}

void check_residency(std::string const& name, numerics mode) {
  auto const weights = any_model(name);
  test::cuda_machine const machine;
  test::scratch_folder const scratch;
  comparison same{weights, on_device(mode)};
  auto chains = all_chains();
  // What differs between numerics are kernels, and they see addresses only.
  if (mode == numerics::fast) { chains.resize(1); }
  check_chains(same, chains, scratch.file(""));
  check_experts(same);
}

TEMPLATE_TEST_CASE("logits of a device are byte-identical wherever weights live, in exact numerics",
                   "[golden]",
                   llama_tiny,
                   minimax_m2_tiny,
                   kimi_k2_tiny,
                   kimi_k3_tiny,
                   kimi_linear_made) {
  check_residency(TestType::name, numerics::exact);
}

TEMPLATE_TEST_CASE("logits of a device are byte-identical wherever weights live, in fast numerics",
                   "[golden]",
                   llama_tiny,
                   minimax_m2_tiny,
                   kimi_k2_tiny,
                   kimi_k3_tiny,
                   kimi_linear_made) {
  check_residency(TestType::name, numerics::fast);
}

}  // namespace
}  // namespace terrace::golden
