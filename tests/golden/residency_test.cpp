// SPDX-License-Identifier: Apache-2.0
// Logits do not depend on where weights live: byte for byte, whatever the chain, its sizes and its
// policies.
#include "support/comparison.hpp"
#include "support/golden_models.hpp"
#include "support/running_model.hpp"
#include "support/scratch_folder.hpp"
#include "support/split_gguf.hpp"

#include <terrace/evict/any.hpp>
#include <terrace/prefetch/any.hpp>

#include <catch2/catch_template_test_macros.hpp>
#include <catch2/catch_test_macros.hpp>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace terrace::golden {
namespace {

/// The smallest cap of main memory that works.
std::optional<runner::size_request> least_memory(comparison const& same) {
  return same.least(&runner::chain_options::dram, [](setup&) {});
}

void check_sizes(comparison& same) {
  auto const least = least_memory(same);
  auto const capped =
      same.check("smallest cap that works", [&](setup& how) { how.chain.dram = least; });
  CHECK(capped.evictions > 0);
  if (same.needs().experts == 0) { return; }
  for (std::string const& slots :
       {std::to_string(same.needs().top_k), std::string{"10%"}, std::string{"50%"}}) {
    auto const limited = same.check("--experts " + slots, [&](setup& how) {
      how.chain.experts = runner::slot_request::parse(slots);
    });
    CHECK(limited.evictions > 0);
  }
}

void check_policies(comparison& same) {
  bool const mixture = same.needs().experts > 0;
  auto const tight = least_memory(same);
  for (auto const name : evict::any::names) {
    if (name == "pinned") {
      same.check("evict pinned", [](setup& how) { how.chain.evict = "pinned"; });
      continue;
    }
    auto const evicting = same.check("evict " + std::string{name}, [&](setup& how) {
      how.chain.evict = std::string{name};
      mixture ? void(how.chain.experts = runner::slot_request::parse("10%"))
              : void(how.chain.dram = tight);
    });
    CHECK(evicting.evictions > 0);
  }
  if (!mixture) { return; }
  for (auto const name : prefetch::any::names) {
    auto const guessing = same.check("prefetch " + std::string{name}, [&](setup& how) {
      how.chain.prefetch = std::string{name};
      how.chain.experts = runner::slot_request::parse("20%");
    });
    CHECK((guessing.prefetched > 0) == (name != "none"));
  }
}

void check_threads(comparison& same) {
  for (int const threads : {2, 8}) {
    same.check(std::to_string(threads) + " threads", [&](setup& how) { how.threads = threads; });
  }
}

void check_chains(comparison& same, std::filesystem::path const& scratch) {
  auto const tight = least_memory(same);
  auto const on = [&](std::string const& chain, std::string const& size) {
    return [&, chain, size](setup& how) {
      how.chain.name = chain;
      how.chain.pmem = runner::sized_path::parse((scratch / chain).string() + ":" + size);
      if (chain != "pmem-nvme") { how.chain.dram = tight; }
    };
  };
  same.check("inclusive pmem", on("dram-pmem-nvme", "64MiB"));
  same.check("small inclusive pmem", on("dram-pmem-nvme", "1MiB"));
  same.check("exclusive pmem", on("dram-pmem-nvme-exclusive", "64MiB"));
  same.check("small exclusive pmem", on("dram-pmem-nvme-exclusive", "1MiB"));
  same.check("pmem read in place", on("pmem-nvme", "64MiB"));
}

void check_residency(std::filesystem::path const& weights, numerics mode) {
  test::scratch_folder const scratch;
  comparison same{weights, {.mode = mode, .context_tokens = 64}};
  check_sizes(same);
  check_policies(same);
  check_threads(same);
  check_chains(same, scratch.file(""));
  same.check_file(split_in_three(weights, scratch.file("")), "three shards", [](setup&) {});
}

TEMPLATE_TEST_CASE("logits are byte-identical wherever weights live, in exact numerics",
                   "[golden]",
                   llama_tiny,
                   minimax_m2_tiny,
                   kimi_k2_tiny,
                   kimi_k3_tiny,
                   kimi_linear_made) {
  check_residency(any_model(TestType::name), numerics::exact);
}

TEMPLATE_TEST_CASE("logits are byte-identical wherever weights live, in fast numerics",
                   "[golden]",
                   llama_tiny,
                   minimax_m2_tiny,
                   kimi_k2_tiny,
                   kimi_k3_tiny,
                   kimi_linear_made) {
  check_residency(any_model(TestType::name), numerics::fast);
}

}  // namespace
}  // namespace terrace::golden
