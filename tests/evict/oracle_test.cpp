// SPDX-License-Identifier: Apache-2.0
#include "concepts/eviction_policy_conformance.hpp"
#include "support/random_source.hpp"

#include <terrace/core/ids.hpp>
#include <terrace/evict/lfu_decay.hpp>
#include <terrace/evict/lru.hpp>
#include <terrace/evict/oracle.hpp>

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <set>
#include <vector>

namespace terrace::test {
namespace {

/// What is asked for at once, of blocks numbered below 16.
using block_set = std::vector<std::uint32_t>;

std::vector<block_set> random_trace(random_source& random,
                                    std::uint32_t blocks,
                                    std::size_t set_size,
                                    int length) {
  std::vector<block_set> trace;
  for (int i = 0; i < length; ++i) {
    std::set<std::uint32_t> chosen;
    while (chosen.size() < set_size) { chosen.insert(random() % blocks); }
    trace.emplace_back(chosen.begin(), chosen.end());
  }
  return trace;
}

std::vector<block_id> flat(std::vector<block_set> const& trace) {
  std::vector<block_id> ids;
  for (auto const& set : trace) {
    for (auto const number : set) { ids.push_back(numbered(number)); }
  }
  return ids;
}

template <class Policy>
int misses(Policy policy, std::vector<block_set> const& trace, std::size_t capacity) {
  std::set<block_id> resident;
  int count = 0;
  for (auto const& set : trace) {
    std::set<block_id> held;
    for (auto const number : set) { held.insert(numbered(number)); }
    for (block_id const id : held) {
      if (resident.contains(id)) { policy.touch(id); }
    }
    for (block_id const id : held) {
      if (resident.contains(id)) { continue; }
      ++count;
      if (resident.size() == capacity) {
        auto const victim = policy.victim([&](block_id other) { return !held.contains(other); });
        REQUIRE(victim.has_value());
        policy.forget(*victim);
        resident.erase(*victim);
      }
      policy.admit(id, 1);
      resident.insert(id);
    }
  }
  return count;
}

/// The fewest misses any policy could have: every set of residents after every step.
int fewest_misses(std::vector<block_set> const& trace, std::size_t capacity) {
  std::map<std::uint32_t, int> reachable{{0U, 0}};
  for (auto const& set : trace) {
    std::uint32_t wanted = 0;
    for (auto const number : set) { wanted |= 1U << number; }
    std::map<std::uint32_t, int> next;
    for (auto const& [resident, count] : reachable) {
      int const cost = count + std::popcount(wanted & ~resident);
      std::uint32_t const others = resident & ~wanted;
      for (std::uint32_t kept = others;; kept = (kept - 1) & others) {
        if (static_cast<std::size_t>(std::popcount(kept | wanted)) <= capacity) {
          auto const [at, fresh] = next.try_emplace(kept | wanted, cost);
          if (!fresh) { at->second = std::min(at->second, cost); }
        }
        if (kept == 0) { break; }
      }
    }
    reachable = std::move(next);
  }
  int fewest = std::numeric_limits<int>::max();
  for (auto const& [resident, count] : reachable) { fewest = std::min(fewest, count); }
  return fewest;
}

}  // namespace

TEST_CASE("the oracle misses no more than an exhaustive search", "[evict]") {
  for (std::uint32_t seed = 0; seed < 200; ++seed) {
    INFO("seed " << seed);
    random_source random{seed};
    std::size_t const set_size = 1 + seed % 3;
    std::size_t const capacity = set_size + random() % 4;
    auto const trace = random_trace(random, 8, set_size, 14);
    CHECK(misses(evict::oracle{{flat(trace)}}, trace, capacity) == fewest_misses(trace, capacity));
  }
}

TEST_CASE("the oracle misses less than policies that cannot see ahead", "[evict]") {
  random_source random{3};
  auto const trace = random_trace(random, 16, 2, 2000);
  int const best = misses(evict::oracle{{flat(trace)}}, trace, 6);
  CHECK(best < misses(evict::lru{{}}, trace, 6));
  CHECK(best < misses(evict::lfu_decay{{}}, trace, 6));
}

TEST_CASE("the oracle takes uses beyond its future as the last ones", "[evict]") {
  evict::oracle policy{{{numbered(1), numbered(2), numbered(1)}}};
  policy.admit(numbered(1), 1);
  policy.admit(numbered(2), 1);
  policy.admit(numbered(3), 1);  // not foretold
  policy.touch(numbered(2));
  policy.touch(numbered(2));
  auto const first = policy.victim([](block_id) { return true; });
  REQUIRE(first.has_value());
  CHECK(*first != numbered(1));
  policy.forget(*first);
  policy.admit(*first, 1);
  CHECK(policy.victim([](block_id id) { return id != numbered(1); }).has_value());
}

TEST_CASE("the oracle keeps the promises of an eviction policy without a future", "[evict]") {
  check_eviction_policy(evict::oracle{{}});
  check_eviction_policy_at_random(evict::oracle{{}}, 5);
}

}  // namespace terrace::test
