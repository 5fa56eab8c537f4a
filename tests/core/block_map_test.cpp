// SPDX-License-Identifier: Apache-2.0
#include "support/random_source.hpp"

#include <terrace/core/block_map.hpp>
#include <terrace/core/error.hpp>
#include <terrace/core/ids.hpp>

#include <catch2/catch_test_macros.hpp>

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

namespace terrace::test {
namespace {

/// Drives a map and the standard one with the same calls on ids drawn by `draw`, and compares them.
template <class Draw>
void compare_with_standard_map(random_source random, Draw draw, int steps) {
  block_map<std::uint32_t> map;
  std::unordered_map<std::uint64_t, std::uint32_t> expected;
  for (int step = 0; step < steps; ++step) {
    block_id const id = draw(random);
    auto const key = static_cast<std::uint64_t>(id);
    switch (random() % 4) {
      case 0:
      case 1: {
        auto const value = random();
        CHECK(map.assign(id, value) == value);
        expected[key] = value;
        break;
      }
      case 2:
        REQUIRE(map.erase(id) == (expected.erase(key) != 0));
        break;
      default: {
        auto const* found = map.find(id);
        auto const known = expected.find(key);
        REQUIRE((found != nullptr) == (known != expected.end()));
        if (found != nullptr) { REQUIRE(*found == known->second); }
      }
    }
    REQUIRE(map.size() == expected.size());
  }
  for (auto const& [key, value] : expected) {
    auto const* found = map.find(block_id{key});
    REQUIRE(found != nullptr);
    REQUIRE(*found == value);
  }
  std::size_t visited = 0;
  map.for_each([&](block_id id, std::uint32_t value) {
    ++visited;
    REQUIRE(expected.at(static_cast<std::uint64_t>(id)) == value);
  });
  CHECK(visited == expected.size());
}

}  // namespace

TEST_CASE("a block map agrees with the standard map on expert ids", "[core]") {
  for (std::uint32_t seed = 1; seed <= 4; ++seed) {
    INFO("seed " << seed);
    compare_with_standard_map(
        random_source{seed},
        [](random_source& random) {
          return expert_block(layer_id{random() % 8}, expert_id{random() % 64});
        },
        20'000);
  }
}

TEST_CASE("a block map agrees with the standard map when ids collide and wrap around the table",
          "[core]") {
  // Ids that share their place in the table, whatever its size up to 2^16 cells: found by search,
  // not by formula.
  auto const place = [](std::uint64_t id) {
    std::uint64_t const x = id * 0x9E37'79B9'7F4A'7C15ULL;
    return (x ^ (x >> 32U)) & 0xFFFFU;
  };
  std::vector<block_id> crowded;
  for (std::uint64_t id = 1; crowded.size() < 48; ++id) {
    if (place(id) >= 0xFFFEU) { crowded.push_back(block_id{id}); }
  }
  for (std::uint32_t seed = 1; seed <= 4; ++seed) {
    INFO("seed " << seed);
    compare_with_standard_map(
        random_source{seed},
        [&](random_source& random) { return crowded[random() % crowded.size()]; },
        20'000);
  }
}

TEST_CASE("a block map keeps its entries while it grows", "[core]") {
  block_map<std::uint32_t> map;
  for (std::uint32_t i = 0; i < 100'000; ++i) {
    map.assign(expert_block(layer_id{i / 896}, expert_id{i % 896}), i);
  }
  CHECK(map.size() == 100'000);
  for (std::uint32_t i = 0; i < 100'000; ++i) {
    auto const* found = map.find(expert_block(layer_id{i / 896}, expert_id{i % 896}));
    REQUIRE(found != nullptr);
    REQUIRE(*found == i);
  }
}

TEST_CASE("a block map never holds id 0", "[core]") {
  block_map<int> map;
  CHECK(map.find(block_id{}) == nullptr);
  CHECK_FALSE(map.erase(block_id{}));
  CHECK_THROWS_AS(map.assign(block_id{}, 1), contract_error);
  CHECK(map.size() == 0);
}

}  // namespace terrace::test
