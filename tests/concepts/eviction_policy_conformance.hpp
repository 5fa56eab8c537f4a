// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "support/random_source.hpp"

#include <terrace/concepts/eviction_policy.hpp>

#include <catch2/catch_test_macros.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <utility>

namespace terrace::test {

[[nodiscard]] inline block_id numbered(std::uint32_t number) {
  return expert_block(layer_id{number / 64}, expert_id{number % 64});
}

/// What the concept promises of any policy that does evict; `policy` is fresh.
template <eviction_policy Policy>
void check_eviction_policy(Policy policy) {
  auto const anyone = [](block_id) { return true; };
  auto const nobody = [](block_id) { return false; };
  CHECK(policy.victim(anyone) == std::nullopt);
  policy.touch(numbered(7));  // unknown ids are ignored
  policy.forget(numbered(7));
  CHECK(policy.victim(anyone) == std::nullopt);

  policy.admit(numbered(1), 4096);
  CHECK(policy.victim(nobody) == std::nullopt);
  CHECK(policy.victim(anyone) == numbered(1));
  CHECK(policy.victim(anyone) == numbered(1));  // names, does not remove
  policy.admit(numbered(2), 64);
  CHECK(policy.victim([](block_id id) { return id == numbered(2); }) == numbered(2));
  policy.forget(numbered(1));
  policy.forget(numbered(2));
  CHECK(policy.victim(anyone) == std::nullopt);

  policy.admit(numbered(1), 4096);
  Policy moved{std::move(policy)};
  CHECK(moved.victim(anyone) == numbered(1));
}

/// Random use: every victim is resident and may leave, and there is one whenever some block may
/// leave.
template <eviction_policy Policy>
void check_eviction_policy_at_random(Policy policy, std::uint32_t seed) {
  INFO("seed " << seed);
  random_source random{seed};
  std::set<block_id> resident;
  std::set<block_id> leased;
  for (int step = 0; step < 20'000; ++step) {
    block_id const id = numbered(random() % 200);
    switch (random() % 8) {
      case 0:
      case 1:
        policy.admit(id, 1 + random() % 1000);
        resident.insert(id);
        break;
      case 2:
        policy.forget(id);
        resident.erase(id);
        leased.erase(id);
        break;
      case 3:
        policy.tick();
        break;
      case 4:
        if (resident.contains(id)) { leased.insert(id); }
        break;
      case 5:
        leased.erase(id);
        break;
      case 6: {
        auto const victim = policy.victim([&](block_id other) { return !leased.contains(other); });
        REQUIRE(victim.has_value() == (leased.size() < resident.size()));
        if (victim) { REQUIRE((resident.contains(*victim) && !leased.contains(*victim))); }
        if (victim && random() % 2 == 0) {
          policy.forget(*victim);
          resident.erase(*victim);
        }
        break;
      }
      default:
        policy.touch(id);
        break;
    }
  }
}

/// A long run with most blocks leased asks about a bounded number of them per victim.
template <eviction_policy Policy>
void check_that_leased_blocks_stay_cheap(Policy policy) {
  constexpr std::uint32_t blocks = 20'000;
  constexpr std::uint32_t victims = 20'000;
  for (std::uint32_t number = 0; number < blocks; ++number) { policy.admit(numbered(number), 1); }
  std::uint64_t asked = 0;
  for (std::uint32_t round = 0; round < victims; ++round) {
    auto const victim = policy.victim([&](block_id id) {
      ++asked;
      return index_of(id) == 63;
    });
    REQUIRE(victim.has_value());
    policy.forget(*victim);
    policy.admit(*victim, 1);
  }
  CHECK(asked < std::uint64_t{victims} * 200 + 10 * blocks);

  // A block that becomes free among many leased ones is found again soon.
  std::uint32_t waited = 0;
  for (; waited < blocks; ++waited) {
    auto const victim =
        policy.victim([&](block_id id) { return index_of(id) == 63 || id == numbered(5000); });
    REQUIRE(victim.has_value());
    if (*victim == numbered(5000)) { break; }
    policy.forget(*victim);
    policy.admit(*victim, 1);
  }
  CHECK(waited < blocks / 32);
}

}  // namespace terrace::test
