// SPDX-License-Identifier: Apache-2.0
// What only a machine made for the test shows: devices that are full, fail or lack abilities.
#include "support/cuda_machine.hpp"

#include <terrace/core/error.hpp>
#include <terrace/core/units.hpp>
#include <terrace/tier/pinned.hpp>
#include <terrace/tier/unified.hpp>
#include <terrace/tier/vram.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <emulated_cuda/control.hpp>

namespace terrace::test {
namespace {

using Catch::Matchers::ContainsSubstring;
using emulated_cuda::call;

constexpr staging_options small_ring{.staging_bytes = 64 * kib, .slot_bytes = 16 * kib};
vram::options const in_vram{.device = 0, .staging = small_ring};

}  // namespace

TEST_CASE("vram has no room when the device is full, although its cap has", "[tier][fault]") {
  emulated_cuda::machine_facts facts;
  facts.device_bytes = 8 * mib;
  cuda_machine const machine{facts};
  vram tier{64 * mib, in_vram};
  auto const first = tier.try_allocate(6 * mib);
  REQUIRE(first.has_value());
  CHECK_FALSE(tier.try_allocate(6 * mib).has_value());
  CHECK(tier.used_bytes() == 6 * mib);
  tier.deallocate(*first, 6 * mib);
  CHECK(tier.try_allocate(6 * mib).has_value());
}

TEST_CASE("vram reuses what is freed and never holds more than its cap in whole units", "[tier]") {
  cuda_machine const machine;
  std::size_t const before = emulated_cuda::current_usage().device_bytes;
  vram tier{40 * mib, in_vram};
  for (int i = 0; i < 50; ++i) {
    auto const one = tier.try_allocate(30 * mib - i * 4096);
    REQUIRE(one.has_value());
    tier.deallocate(*one, 30 * mib - i * 4096);
  }
  CHECK(emulated_cuda::peak_device_bytes() - before <= 40 * mib);
}

TEST_CASE("an allocation that fails for another reason is one sentence", "[tier][fault]") {
  cuda_machine const machine;
  vram tier{mib, in_vram};
  emulated_cuda::fail_call(call::device_allocation, 1, cudaErrorNotSupported);
  CHECK_THROWS_WITH(tier.try_allocate(5000),
                    ContainsSubstring("8.00 KiB from a pool of device memory") &&
                        ContainsSubstring("cudaErrorNotSupported"));
  CHECK(tier.used_bytes() == 0);
  CHECK(tier.try_allocate(5000).has_value());

  pinned host{mib};
  emulated_cuda::fail_call(call::pinned_allocation, 1, cudaErrorInitializationError);
  CHECK_THROWS_WITH(host.try_allocate(5000), ContainsSubstring("8.00 KiB of pinned memory"));
  CHECK(host.used_bytes() == 0);
  CHECK(host.held_bytes() == 0);
}

TEST_CASE("pinned memory has no room when the system lets no more be pinned", "[tier][fault]") {
  emulated_cuda::machine_facts facts;
  facts.pinned_bytes = 32 * kib;
  cuda_machine const machine{facts};
  pinned tier{mib};
  auto const small = tier.try_allocate(8 * kib);
  REQUIRE(small.has_value());
  tier.deallocate(*small, 8 * kib);
  CHECK(tier.try_allocate(28 * kib).has_value());  // the kept slot goes for it
  CHECK_FALSE(tier.try_allocate(8 * kib).has_value());
  CHECK(tier.used_bytes() == 28 * kib);
  CHECK_THROWS_WITH((vram{mib, in_vram}), ContainsSubstring("may be pinned"));
}

TEST_CASE("unified memory needs a device that shares it while computing", "[tier][fault]") {
  emulated_cuda::machine_facts facts;
  facts.concurrent_managed_access = false;
  cuda_machine const machine{facts};
  unified::options any;
  any.oversubscribe = true;
  CHECK_THROWS_AS((unified{mib, any}), not_supported);
  CHECK_THROWS_WITH((unified{mib, any}), ContainsSubstring("cannot share managed memory"));
}

TEST_CASE("unified memory lives where it is advised to", "[tier]") {
  cuda_machine const machine;
  unified tier{mib,
               {.device = 0, .on_device = true, .oversubscribe = false, .staging = small_ring}};
  auto const block = tier.try_allocate(256 * kib);
  REQUIRE(block.has_value());
  CHECK(emulated_cuda::current_usage().device_bytes == 0);
  tier.settle_pages(*block, 256 * kib);
  CHECK(emulated_cuda::current_usage().device_bytes == 256 * kib);
}

}  // namespace terrace::test
