// SPDX-License-Identifier: Apache-2.0
#include "concepts/eviction_policy_conformance.hpp"

#include <terrace/core/error.hpp>
#include <terrace/core/ids.hpp>
#include <terrace/evict/any.hpp>
#include <terrace/evict/clock.hpp>
#include <terrace/evict/lfu_decay.hpp>
#include <terrace/evict/lru.hpp>
#include <terrace/evict/pinned.hpp>
#include <terrace/evict/s3_fifo.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <cmath>
#include <cstdint>
#include <limits>
#include <set>
#include <string>
#include <string_view>

namespace terrace::test {
namespace {

using Catch::Matchers::ContainsSubstring;

bool anyone(block_id) { return true; }

template <class Policy>
void admit(Policy& policy, std::uint32_t first, std::uint32_t last) {
  for (std::uint32_t number = first; number <= last; ++number) {
    policy.admit(numbered(number), 1);
  }
}

/// Hits of tokens that each use ten hot blocks and then thirty that never return, in a level of
/// thirty.
template <class Policy>
int hits_of_hot_blocks(Policy policy, std::uint32_t tokens) {
  std::set<block_id> resident;
  int hits = 0;
  for (std::uint32_t token = 0; token < tokens; ++token) {
    for (std::uint32_t use = 0; use < 40; ++use) {
      block_id const id = numbered(use < 10 ? use : 40 * token + use);
      if (resident.contains(id)) {
        ++hits;
        policy.touch(id);
        continue;
      }
      if (resident.size() == 30) {
        auto const victim = policy.victim(anyone);
        REQUIRE(victim.has_value());
        policy.forget(*victim);
        resident.erase(*victim);
      }
      policy.admit(id, 1);
      resident.insert(id);
    }
    policy.tick();
  }
  return hits;
}

}  // namespace

TEST_CASE("lru evicts the least recently touched block", "[evict]") {
  evict::lru policy{{}};
  admit(policy, 1, 3);
  policy.touch(numbered(1));
  CHECK(policy.victim(anyone) == numbered(2));
  policy.admit(numbered(2), 1);  // resident already: one more use
  CHECK(policy.victim(anyone) == numbered(3));
}

TEST_CASE("a block refused once is named as soon as it may leave", "[evict]") {
  evict::lru policy{{}};
  admit(policy, 1, 3);
  CHECK(policy.victim([](block_id id) { return id != numbered(1); }) == numbered(2));
  CHECK(policy.victim(anyone) == numbered(1));
}

TEST_CASE("clock gives a second chance per use, up to its counter", "[evict]") {
  evict::clock policy{{.counter_bits = 1}};
  admit(policy, 1, 2);
  for (int use = 0; use < 5; ++use) { policy.touch(numbered(1)); }
  CHECK(policy.victim(anyone) == numbered(2));
  policy.forget(numbered(2));
  admit(policy, 3, 3);
  CHECK(policy.victim(anyone) == numbered(1));  // its one chance is spent
}

TEST_CASE("s3_fifo drops what a scan brings in and keeps what is used", "[evict]") {
  evict::s3_fifo policy{{}};
  admit(policy, 1, 4);
  for (std::uint32_t number = 1; number <= 4; ++number) { policy.touch(numbered(number)); }
  for (std::uint32_t number = 10; number < 200; ++number) {
    policy.admit(numbered(number), 1);
    auto const victim = policy.victim(anyone);
    REQUIRE(victim.has_value());
    CHECK(index_of(*victim) + 64 * static_cast<std::uint32_t>(layer_of(*victim)) >= 10);
    policy.forget(*victim);
  }
}

TEST_CASE("s3_fifo lets a block that comes back soon into its main queue", "[evict]") {
  evict::s3_fifo policy{{.small_share = 0.5}};
  admit(policy, 1, 8);
  policy.forget(numbered(1));
  policy.admit(numbered(1), 1);
  for (std::uint32_t number = 2; number <= 8; ++number) {
    auto const victim = policy.victim(anyone);
    REQUIRE(victim.has_value());
    CHECK(*victim != numbered(1));
    if (number < 5) { policy.forget(*victim); }
  }
}

TEST_CASE("s3_fifo measures its queues in bytes", "[evict]") {
  evict::s3_fifo policy{{.small_share = 0.5}};
  policy.admit(numbered(1), 1000);
  policy.touch(numbered(1));
  policy.admit(numbered(2), 10);
  CHECK(policy.victim(anyone) == numbered(2));  // moves 1 to the main queue on the way
  policy.admit(numbered(3), 10);
  CHECK(policy.victim(anyone) ==
        numbered(1));  // 20 bytes are less than half, two of three blocks would be more
}

TEST_CASE("lfu_decay evicts the block used least", "[evict]") {
  evict::lfu_decay policy{{}};
  admit(policy, 1, 3);
  policy.touch(numbered(1));
  policy.touch(numbered(3));
  CHECK(policy.victim(anyone) == numbered(2));
}

TEST_CASE("lfu_decay forgets old uses by its half-life", "[evict]") {
  for (double const half_life : {2.0, 64.0}) {
    evict::lfu_decay policy{{.half_life_tokens = half_life}};
    policy.admit(numbered(1), 1);
    for (int use = 0; use < 3; ++use) { policy.touch(numbered(1)); }  // four uses
    for (int token = 0; token < 16; ++token) { policy.tick(); }
    policy.admit(numbered(2), 1);
    CHECK(policy.victim(anyone) == numbered(half_life < 16 ? 1 : 2));
  }
}

TEST_CASE("lfu_decay resumes the score of a block that comes back", "[evict]") {
  evict::lfu_decay policy{{}};
  admit(policy, 1, 1);
  policy.touch(numbered(1));
  policy.forget(numbered(1));
  CHECK(policy.victim(anyone) == std::nullopt);
  admit(policy, 1, 2);
  policy.touch(numbered(2));
  CHECK(policy.victim(anyone) == numbered(2));  // two uses against three
}

TEST_CASE("lfu_decay remembers no more blocks than it was told", "[evict]") {
  evict::lfu_decay policy{{.remembered = 8}};
  for (std::uint32_t number = 0; number < 1000; ++number) {
    policy.admit(numbered(number), 1);
    policy.forget(numbered(number));
  }
  admit(policy, 0, 0);  // long forgotten: one use
  policy.admit(numbered(2000), 1);
  policy.touch(numbered(2000));
  CHECK(policy.victim(anyone) == numbered(0));
}

TEST_CASE("a level below one token's cycle keeps its hot blocks under lfu_decay", "[evict]") {
  CHECK(hits_of_hot_blocks(evict::lru{{}}, 100) == 0);
  CHECK(hits_of_hot_blocks(evict::lfu_decay{{}}, 100) > 900);
}

TEST_CASE("pinned names nobody", "[evict]") {
  evict::pinned policy{{}};
  admit(policy, 1, 3);
  CHECK(policy.victim(anyone) == std::nullopt);
}

TEST_CASE("options out of range are refused with the range", "[evict]") {
  CHECK_THROWS_WITH(evict::clock{{0}},
                    ContainsSubstring("counter_bits is 0") && ContainsSubstring("1 to 8"));
  CHECK_THROWS_AS(evict::clock{{9}}, contract_error);
  CHECK_THROWS_WITH((evict::s3_fifo{{0.0, 1}}), ContainsSubstring("small_share"));
  CHECK_THROWS_AS((evict::s3_fifo{{1.0, 1}}), contract_error);
  CHECK_THROWS_AS((evict::s3_fifo{{std::nan(""), 1}}), contract_error);
  CHECK_THROWS_WITH((evict::s3_fifo{{0.1, 4}}), ContainsSubstring("promote_after is 4"));
  CHECK_THROWS_AS((evict::s3_fifo{{0.1, 0}}), contract_error);
  for (double const half_life :
       {0.0, -1.0, 1e7, std::nan(""), std::numeric_limits<double>::infinity()}) {
    CHECK_THROWS_WITH(evict::lfu_decay{{half_life}}, ContainsSubstring("half_life_tokens"));
  }
}

TEST_CASE("a block of id 0 is refused", "[evict]") {
  evict::lru policy{{}};
  CHECK_THROWS_AS(policy.admit(block_id{}, 1), contract_error);
  policy.touch(block_id{});
  policy.forget(block_id{});
  CHECK(policy.victim(anyone) == std::nullopt);
}

TEST_CASE("every name of the table makes a policy", "[evict]") {
  for (std::string_view const name : evict::any::names) {
    evict::any policy{{std::string{name}}};
    policy.admit(numbered(1), 1);
    CHECK(policy.victim(anyone).has_value() == (name != "pinned"));
  }
}

TEST_CASE("an unknown policy is refused with the names that exist", "[evict]") {
  CHECK_THROWS_WITH(
      evict::any{{"mru"}},
      ContainsSubstring("`mru`") && ContainsSubstring("lfu_decay, lru, clock, s3_fifo or pinned"));
  CHECK_THROWS_AS(evict::any{{""}}, contract_error);
}

TEST_CASE("the oracle is refused outside a replay", "[evict]") {
  CHECK_THROWS_WITH(evict::any{{"oracle"}},
                    ContainsSubstring("terrace-replay") && ContainsSubstring("lru"));
}

}  // namespace terrace::test
