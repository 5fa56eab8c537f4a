// SPDX-License-Identifier: Apache-2.0
#include "tier/memory_tier_conformance.hpp"

#include <terrace/core/units.hpp>
#include <terrace/shim/anonymous_memory.hpp>
#include <terrace/tier/dram.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <random>
#include <string>
#include <vector>

using namespace terrace;

namespace {

/// Pages of this process that are in memory, in bytes.
std::size_t resident_bytes() {
  std::ifstream file{"/proc/self/statm"};
  std::size_t total = 0;
  std::size_t resident = 0;
  file >> total >> resident;
  return resident * 4096;
}

void touch(dram& tier, dram::handle at, std::size_t bytes, std::uint8_t mark) {
  std::byte* const first = tier.address(at);
  for (std::size_t i = 0; i < bytes; i += 4096) { first[i] = std::byte{mark}; }
  first[bytes - 1] = std::byte{mark};
}

}  // namespace

TEST_CASE("dram keeps the promises of a memory tier", "[tier]") {
  test::check_memory_tier(dram{4 * mib});
  test::check_memory_tier(dram{4 * mib, {.pages = shim::page_kind::ordinary}});
  test::check_memory_tier(dram{4 * mib, {.pages = shim::page_kind::reserved_huge}});
}

TEST_CASE("dram without capacity holds nothing", "[tier]") {
  dram tier{0};
  CHECK_FALSE(tier.try_allocate(0).has_value());
  CHECK_FALSE(tier.try_allocate(1).has_value());
}

TEST_CASE("dram finds room whenever the bytes are there, whatever the sizes were before",
          "[tier]") {
  std::uint32_t const seed = 20240607;
  CAPTURE(seed);
  std::mt19937 random{seed};
  constexpr std::size_t capacity = 6 * mib + 12345;
  auto const pages = GENERATE(
      shim::page_kind::ordinary, shim::page_kind::transparent_huge, shim::page_kind::reserved_huge);
  dram tier{capacity, {.pages = pages}};
  struct live_block {
    dram::handle at;
    std::size_t bytes;
    std::uint8_t mark;
  };
  std::vector<live_block> live;
  std::size_t const before = resident_bytes();
  std::size_t refused = 0;
  std::size_t counted = 0;
  for (int step = 0; step < 20'000; ++step) {
    bool const grow = live.empty() || random() % 2 == 0;
    if (grow) {
      std::size_t const bytes = random() % (1U << (random() % 23)) + 1;
      bool const fits = tier.used_bytes() + tier.rounded_bytes(bytes) <= capacity;
      auto const at = tier.try_allocate(bytes);
      REQUIRE(at.has_value() == fits);
      if (!at) {
        ++refused;
        continue;
      }
      counted += tier.rounded_bytes(bytes);
      live.push_back({*at, bytes, static_cast<std::uint8_t>(step)});
      touch(tier, *at, bytes, live.back().mark);
    } else {
      std::swap(live[random() % live.size()], live.back());
      auto const gone = live.back();
      live.pop_back();
      REQUIRE(tier.address(gone.at)[gone.bytes - 1] == std::byte{gone.mark});
      tier.deallocate(gone.at, gone.bytes);
      counted -= tier.rounded_bytes(gone.bytes);
    }
    REQUIRE(tier.used_bytes() == counted);
    REQUIRE(tier.held_bytes() <= capacity);
    if (step % 500 == 0) { REQUIRE(resident_bytes() < before + capacity + 6 * mib); }
  }
  CHECK(refused > 100);  // the cap was met
}

TEST_CASE("dram gives kept pages back before another size takes their place", "[tier]") {
  constexpr std::size_t capacity = 64 * mib;
  dram tier{capacity};
  std::size_t const before = resident_bytes();
  for (std::size_t const bytes : {2 * mib, 1 * mib, 8 * mib, 64 * mib}) {
    std::vector<dram::handle> blocks;
    while (auto const at = tier.try_allocate(bytes)) {
      touch(tier, *at, bytes, 1);
      blocks.push_back(*at);
    }
    CHECK(blocks.size() == capacity / bytes);
    CHECK(tier.held_bytes() == capacity);
    CHECK(resident_bytes() < before + capacity + 4 * mib);
    for (auto const at : blocks) { tier.deallocate(at, bytes); }
  }
}

TEST_CASE("dram reuses a freed slot of the same size", "[tier]") {
  dram tier{8 * mib};
  auto const first = tier.try_allocate(mib);
  tier.deallocate(*first, mib);
  CHECK(tier.held_bytes() == mib);
  CHECK(tier.try_allocate(mib) == first);
}

TEST_CASE("dram holds 82432 slots in few mappings", "[tier]") {
  constexpr std::size_t expert = 17 * mib;
  dram tier{82'432 * expert};
  std::size_t held = 0;
  while (tier.try_allocate(expert)) { ++held; }
  CHECK(held == 82'432);
  CHECK(tier.regions().size() < 6000);
}

TEST_CASE("dram says which pages it uses", "[tier]") {
  CHECK(dram{mib}.mode() == "transparent huge pages");
  CHECK(dram{mib, {.pages = shim::page_kind::ordinary}}.mode() == "ordinary pages");
  dram const huge{64 * mib, {.pages = shim::page_kind::reserved_huge}};
  CHECK((huge.mode() == "transparent huge pages" || huge.mode() == "reserved huge pages"));
}

TEST_CASE("dram refuses a NUMA node that is not there", "[tier]") {
  using Catch::Matchers::ContainsSubstring;
  CHECK_THROWS_WITH((dram{mib, {.numa_node = 4000}}), ContainsSubstring("numa_node 4000"));
  CHECK_THROWS_WITH((dram{mib, {.numa_node = -7}}), ContainsSubstring("numa_node -7"));
}

#if defined(TERRACE_HAS_NUMA)
TEST_CASE("dram places blocks on the NUMA node it is given", "[tier]") {
  try {
    shim::require_numa_node(0);
  } catch (not_supported const& why) { SKIP(why.what()); }
  dram tier{4 * mib, {.numa_node = 0}};
  CHECK(tier.mode() == "transparent huge pages, NUMA node 0 preferred");
  auto const at = tier.try_allocate(mib);
  touch(tier, *at, mib, 1);
  int node = -1;
  REQUIRE(::get_mempolicy(&node, nullptr, 0, tier.address(*at), MPOL_F_NODE | MPOL_F_ADDR) == 0);
  CHECK(node == 0);
}
#endif
