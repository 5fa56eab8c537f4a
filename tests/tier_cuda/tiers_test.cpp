// SPDX-License-Identifier: Apache-2.0
#include "support/cuda_machine.hpp"
#include "tier/memory_tier_conformance.hpp"

#include <terrace/core/units.hpp>
#include <terrace/tier/pinned.hpp>
#include <terrace/tier/unified.hpp>
#include <terrace/tier/vram.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <cstddef>
#include <utility>

namespace terrace::test {
namespace {

using Catch::Matchers::ContainsSubstring;

constexpr staging_options small_ring{.staging_bytes = 64 * kib, .slot_bytes = 16 * kib};
vram::options const in_vram{.device = 0, .staging = small_ring};
unified::options const on_device{
    .device = 0, .on_device = true, .oversubscribe = false, .staging = small_ring};

}  // namespace

TEST_CASE("vram keeps the promises of a memory tier", "[tier]") {
  cuda_machine const machine;
  check_memory_tier(vram{mib, in_vram}, device_access{});
}
TEST_CASE("pinned memory keeps the promises of a memory tier", "[tier]") {
  cuda_machine const machine;
  check_memory_tier(pinned{mib});
  check_memory_tier(pinned{mib}, device_access{});  // at the same addresses
}
TEST_CASE("unified memory keeps the promises of a memory tier", "[tier]") {
  cuda_machine const machine;
  check_memory_tier(unified{mib, on_device});
  check_memory_tier(unified{mib, on_device}, device_access{});
}

TEST_CASE("vram in random use holds its blocks and its cap", "[tier]") {
  cuda_machine const machine;
  // The pool holds whole units of the device.
  check_random_use(vram{mib, in_vram}, shim::memory_pool::unit_bytes, device_access{});
}
TEST_CASE("pinned memory in random use holds its blocks and its cap", "[tier]") {
  cuda_machine const machine;
  check_random_use(pinned{mib}, mib);
}
TEST_CASE("unified memory in random use holds its blocks and its cap", "[tier]") {
  cuda_machine const machine;
  check_random_use(unified{mib, on_device}, mib, device_access{});
}

TEST_CASE("freed pinned memory stays pinned for the next block of its size", "[tier]") {
  cuda_machine const machine;
  pinned memory{64 * kib};
  auto const first = memory.try_allocate(16 * kib);
  REQUIRE(first.has_value());
  memory.deallocate(*first, 16 * kib);
  CHECK(memory.used_bytes() == 0);
  CHECK(memory.held_bytes() == 16 * kib);
  auto const second = memory.try_allocate(16 * kib - 7);
  REQUIRE(second.has_value());
  CHECK(*second == *first);
  auto const large = memory.try_allocate(48 * kib);
  CHECK(large.has_value());
  CHECK(memory.held_bytes() == 64 * kib);
}

TEST_CASE("a tier zeroes memory of the device", "[tier]") {
  cuda_machine const machine;
  device_access const memory;
  vram tier{mib, in_vram};
  auto const block = tier.try_allocate(10000);
  REQUIRE(block.has_value());
  memory.fill(tier.address(*block), 0x77, 10000);
  tier.zero(*block, 9999);
  CHECK(memory.holds(tier.address(*block), 0, 9999));
  CHECK(memory.holds(tier.address(*block) + 9999, 0x77, 1));

  unified managed{mib, on_device};
  auto const page = managed.try_allocate(5000);
  REQUIRE(page.has_value());
  managed.zero(*page, 5000);
  CHECK(memory.holds(managed.address(*page), 0, 5000));
}

TEST_CASE("a handle knows its device, and a tier gives back what is still allocated", "[tier]") {
  cuda_machine const machine;
  vram tier{mib, in_vram};
  auto const block = tier.try_allocate(3);
  REQUIRE(block.has_value());
  CHECK(block->device == 0);
  CHECK(tier.mode() == "CUDA device 0");
}

TEST_CASE("a tier on a device that is not there is refused", "[tier]") {
  cuda_machine const machine;
  CHECK_THROWS_WITH((vram{mib, {.device = 99, .staging = {}}}),
                    ContainsSubstring("CUDA device 99") && ContainsSubstring("counted from 0"));
  CHECK_THROWS_AS((pinned{mib, {.device = -1}}), contract_error);
  CHECK_THROWS_WITH(
      (vram{mib, {.device = 0, .staging = {.staging_bytes = mib, .slot_bytes = 1000}}}),
      ContainsSubstring("multiple of 4096"));
}

TEST_CASE("unified memory beyond what the device has free is refused", "[tier]") {
  cuda_machine const machine;
  CHECK_THROWS_WITH((unified{64 * 1024 * gib, on_device}), ContainsSubstring("has free"));
  auto more = on_device;
  more.oversubscribe = true;  // a promise of addresses only, as long as nothing is allocated
  CHECK(unified{64 * 1024 * gib, more}.capacity_bytes() == 64 * 1024 * gib);
}

}  // namespace terrace::test
