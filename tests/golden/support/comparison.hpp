// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "running_model.hpp"

#include <terrace/core/error.hpp>
#include <terrace/observe/counters.hpp>
#include <terrace/runtime/plan.hpp>

#include <catch2/catch_message.hpp>
#include <catch2/catch_test_macros.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace terrace::golden {

/// Logits after a prompt and after each of some tokens decoded one by one; longer than a page of
/// sequence state.
inline std::vector<float> run_sequence(running_model& model, int prompt_tokens, int decoded) {
  std::vector<std::int32_t> prompt;
  for (int i = 0; i < prompt_tokens; ++i) { prompt.push_back((i * 131 + 7) % 1900); }
  auto all = model.logits(prompt);
  constexpr std::array<std::int32_t, 8> ids{11, 407, 1203, 5, 888, 1500, 42, 42};
  for (auto const id : std::span{ids}.first(static_cast<std::size_t>(decoded))) {
    auto const next = model.append(id);
    all.insert(all.end(), next.begin(), next.end());
  }
  return all;
}

inline bool same_bytes(std::vector<float> const& a, std::vector<float> const& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

/// Compares runs of one model with a first one, logits byte for byte.
class comparison {
 public:
  /// The first run is set up as `usual`; others change that.
  comparison(std::filesystem::path weights, setup usual)
      : weights_{std::move(weights)}, usual_{std::move(usual)} {
    running_model model{weights_, usual_};
    expected_ = run_sequence(model, usual_.prompt_tokens, usual_.decoded);
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
    INFO(what << ", " << name_of(usual_.mode));
    auto how = usual_;
    change(how);
    running_model model{weights, how};
    CHECK(same_bytes(run_sequence(model, usual_.prompt_tokens, usual_.decoded), expected_));
    auto const tiers = model.engine().counters();
    for (auto const& tier : tiers) {
      INFO("tier " << tier.name);
      if (tier.capacity_bytes != 0) { CHECK(tier.peak_bytes <= tier.capacity_bytes); }
    }
    CHECK(tiers.front().peak_bytes <= model.engine().plan().fastest().memory.predicted_peak_bytes);
    return tiers.front();
  }

  /// The smallest cap of a tier that works, as a command line would spell it. `change` sets the
  /// chain; `cap` is that of the tier.
  template <class Change>
  [[nodiscard]] std::optional<runner::size_request> least(
      std::optional<runner::size_request> runner::chain_options::*cap, Change change) const {
    auto how = usual_;
    change(how);
    how.chain.*cap = runner::size_request::parse("1");
    try {
      running_model model{weights_, how};
    } catch (out_of_capacity const& refused) {
      return runner::size_request::parse(std::to_string(refused.needed_bytes()));
    }
    FAIL("one byte was accepted");
    return {};
  }

 private:
  std::filesystem::path weights_;
  setup usual_;
  std::vector<float> expected_;
  runtime::requirements needs_;
};

}  // namespace terrace::golden
