// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "support/random_source.hpp"

#include <terrace/concepts/prefetch_policy.hpp>

#include <catch2/catch_test_macros.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace terrace::test {

/// What the concept promises of any policy, under random use; `policy` is fresh.
template <prefetch_policy Policy>
void check_prefetch_policy(Policy policy, std::uint32_t seed) {
  INFO("seed " << seed);
  constexpr block_id untouched{0xFFFF'FFFF'FFFF'FFFFU};
  random_source random{seed};
  std::array<block_id, 32> out{};
  CHECK(policy.suggest(out) == 0);  // nothing seen, nothing guessed

  for (int step = 0; step < 5000; ++step) {
    layer_id const layer{random() % 6};
    for (int k = 0; k < 4; ++k) {
      policy.observe({expert_block(layer, expert_id{random() % 16}), random() % 2 == 0});
    }
    std::vector<expert_id> experts;
    std::vector<float> scores;
    for (std::uint32_t k = 0; k < 1 + random() % 8; ++k) {
      experts.push_back(expert_id{random() % 16});
      scores.push_back(static_cast<float>(random() % 100));
    }
    policy.hint({layer_id{static_cast<std::uint32_t>(layer) + 1}, experts, scores});

    std::size_t const room = random() % out.size();
    out.fill(untouched);
    std::size_t const count = policy.suggest(std::span{out}.first(room));
    REQUIRE(count <= room);
    for (std::size_t i = 0; i < out.size(); ++i) {
      REQUIRE((out[i] == untouched) == (i >= count));
      for (std::size_t j = 0; j < i && i < count; ++j) { REQUIRE(out[i] != out[j]); }
    }
  }
  // Without new evidence suggestions run out.
  std::size_t more = 0;
  while (std::size_t const count = policy.suggest(out)) {
    more += count;
    REQUIRE(more < 10'000);
  }
  Policy moved{std::move(policy)};
  CHECK(moved.suggest(out) == 0);
}

}  // namespace terrace::test
