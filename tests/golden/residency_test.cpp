// SPDX-License-Identifier: Apache-2.0
// Logits do not depend on where weights live: byte for byte, whatever the chain, its sizes and its
// policies.
#include "support/golden_models.hpp"
#include "support/running_model.hpp"
#include "support/scratch_folder.hpp"
#include "support/split_gguf.hpp"

#include <terrace/evict/any.hpp>
#include <terrace/prefetch/any.hpp>

#include <catch2/catch_template_test_macros.hpp>
#include <catch2/catch_test_macros.hpp>

#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

namespace terrace::golden {
namespace {

/// Logits after a prompt and after each of some tokens decoded one by one; longer than a page of
/// sequence state.
std::vector<float> run_sequence(running_model& model) {
  std::vector<std::int32_t> prompt;
  for (int i = 0; i < 40; ++i) { prompt.push_back((i * 131 + 7) % 1900); }
  auto all = model.logits(prompt);
  for (std::int32_t const id : {11, 407, 1203, 5, 888, 1500, 42, 42}) {
    auto const next = model.append(id);
    all.insert(all.end(), next.begin(), next.end());
  }
  return all;
}

bool same_bytes(std::vector<float> const& a, std::vector<float> const& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

setup small(numerics mode) { return {.mode = mode, .context_tokens = 64}; }

/// Compares runs of one model with the run that keeps everything in main memory.
class comparison {
 public:
  comparison(std::filesystem::path weights, numerics mode)
      : weights_{std::move(weights)}, mode_{mode} {
    running_model model{weights_, small(mode_)};
    expected_ = run_sequence(model);
    needs_ = model.engine().plan().needs;
  }

  [[nodiscard]] runtime::requirements const& needs() const noexcept { return needs_; }

  /// Returns the counters of the fastest tier.
  template <class Change>
  observe::tier_counters check(std::string const& what, Change change) {
    return check_file(weights_, what, change);
  }
  template <class Change>
  observe::tier_counters check_file(std::filesystem::path const& weights,
                                    std::string const& what,
                                    Change change) {
    INFO(what << ", " << name_of(mode_));
    auto how = small(mode_);
    change(how);
    running_model model{weights, how};
    CHECK(same_bytes(run_sequence(model), expected_));
    auto const tiers = model.engine().counters();
    for (auto const& tier : tiers) {
      INFO("tier " << tier.name);
      if (tier.capacity_bytes != 0) { CHECK(tier.peak_bytes <= tier.capacity_bytes); }
    }
    CHECK(tiers.front().peak_bytes <= model.engine().plan().fastest().memory.predicted_peak_bytes);
    return tiers.front();
  }

  /// The smallest cap of main memory that works, as a command line would spell it.
  [[nodiscard]] std::optional<runner::size_request> least_memory() const {
    setup how = small(mode_);
    how.chain.dram = runner::size_request::parse("1");
    try {
      running_model model{weights_, how};
    } catch (out_of_capacity const& refused) {
      return runner::size_request::parse(std::to_string(refused.needed_bytes()));
    }
    FAIL("one byte of main memory was accepted");
    return {};
  }

 private:
  std::filesystem::path weights_;
  numerics mode_;
  std::vector<float> expected_;
  runtime::requirements needs_;
};

void check_sizes(comparison& same) {
  auto const least = same.least_memory();
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
  auto const tight = same.least_memory();
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
  auto const tight = same.least_memory();
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
  comparison same{weights, mode};
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
