// SPDX-License-Identifier: Apache-2.0
#include "concepts/eviction_policy_conformance.hpp"
#include "naive_policies.hpp"
#include "support/random_source.hpp"

#include <terrace/evict/any.hpp>
#include <terrace/evict/clock.hpp>
#include <terrace/evict/lfu_decay.hpp>
#include <terrace/evict/lru.hpp>
#include <terrace/evict/s3_fifo.hpp>

#include <catch2/catch_template_test_macros.hpp>
#include <catch2/catch_test_macros.hpp>

#include <cstddef>
#include <cstdint>
#include <set>

namespace terrace::test {
namespace {

/// Drives both with the same random calls, at most 48 blocks leased at once, and compares every
/// victim.
template <class Policy, class Naive>
void compare(Policy policy, Naive naive, std::uint32_t seed) {
  INFO("seed " << seed);
  random_source random{seed};
  std::set<block_id> resident;
  std::set<block_id> leased;
  auto const may_leave = [&](block_id id) { return !leased.contains(id); };
  for (int step = 0; step < 30'000; ++step) {
    // A skewed choice, so that some blocks are used often.
    block_id const id = numbered(random() % (1 + random() % 120));
    auto const what = random() % 16;
    if (what < 3) {
      std::size_t const bytes = 1 + random() % 9;
      if (resident.insert(id).second) {
        policy.admit(id, bytes);
        naive.admit(id, bytes);
      }
    } else if (what < 4) {
      policy.forget(id);
      naive.forget(id);
      resident.erase(id);
      leased.erase(id);
    } else if (what < 5) {
      if (leased.size() < 48 && resident.contains(id)) { leased.insert(id); }
    } else if (what < 7) {
      if (!leased.empty()) { leased.erase(leased.begin()); }
    } else if (what < 8) {
      policy.tick();
      naive.tick();
    } else if (what < 11) {
      auto const victim = policy.victim(may_leave);
      INFO("step " << step);
      REQUIRE(victim == naive.victim(may_leave));
      if (!victim || what == 8) { continue; }
      policy.forget(*victim);
      naive.forget(*victim);
      resident.erase(*victim);
    } else {
      policy.touch(id);
      naive.touch(id);
    }
  }
}

}  // namespace

TEST_CASE("lru names the victims of a plain list", "[evict]") {
  for (std::uint32_t seed = 1; seed <= 5; ++seed) { compare(evict::lru{{}}, naive_lru{}, seed); }
}

TEST_CASE("clock names the victims of a plain ring for every counter width", "[evict]") {
  for (unsigned bits = 1; bits <= 8; ++bits) {
    compare(evict::clock{{bits}}, naive_clock{bits}, bits);
  }
}

TEST_CASE("s3_fifo names the victims of plain queues", "[evict]") {
  for (double const share : {0.1, 0.5}) {
    for (unsigned after = 1; after <= 3; ++after) {
      compare(evict::s3_fifo{{share, after}}, naive_s3_fifo{share, after}, after);
    }
  }
}

TEST_CASE("lfu_decay names the victims of an exhaustive search", "[evict]") {
  for (double const half_life : {0.01, 1.0, 16.0, 1e6}) {
    compare(evict::lfu_decay{{half_life}},
            naive_lfu_decay{half_life},
            static_cast<std::uint32_t>(half_life) + 1);
  }
}

TEMPLATE_TEST_CASE("an eviction policy keeps its promises",
                   "[evict]",
                   evict::lru,
                   evict::clock,
                   evict::s3_fifo,
                   evict::lfu_decay,
                   evict::any) {
  check_eviction_policy(TestType{typename TestType::options{}});
  check_eviction_policy_at_random(TestType{typename TestType::options{}}, 11);
  check_that_leased_blocks_stay_cheap(TestType{typename TestType::options{}});
}

}  // namespace terrace::test
