// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/concepts/memory_tier.hpp>

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

namespace terrace::test {

/// What the concept promises of any host-readable tier of at least 64 granules that is empty.
template <host_readable_tier Tier>
void check_memory_tier(Tier tier) {
  std::size_t const unit = Tier::traits.granularity;
  std::size_t const capacity = tier.capacity_bytes();
  REQUIRE(capacity >= 64 * unit);
  CHECK(tier.used_bytes() == 0);
  CHECK_FALSE(tier.try_allocate(capacity + 1).has_value());
  CHECK_FALSE(tier.try_allocate(SIZE_MAX).has_value());

  auto const small = tier.try_allocate(1);
  REQUIRE(small.has_value());
  CHECK(tier.used_bytes() == unit);
  auto const block = tier.try_allocate(3 * unit + 1);
  REQUIRE(block.has_value());
  CHECK(tier.used_bytes() == 5 * unit);
  CHECK(reinterpret_cast<std::uintptr_t>(tier.address(*block)) % unit == 0);
  CHECK(tier.address(*small) != tier.address(*block));

  std::memset(tier.address(*block), 0x5A, 3 * unit + 1);
  std::memset(tier.address(*small), 0x11, 1);
  auto const* const bytes = tier.address(*block);
  CHECK(std::all_of(bytes, bytes + 3 * unit + 1, [](std::byte b) { return b == std::byte{0x5A}; }));

  std::size_t const rest = capacity - tier.used_bytes();
  CHECK_FALSE(tier.try_allocate(rest + 1).has_value());
  auto const last = tier.try_allocate(rest / unit * unit);
  REQUIRE(last.has_value());
  CHECK(tier.used_bytes() <= capacity);
  CHECK_FALSE(tier.try_allocate(unit).has_value());

  std::byte* const where = tier.address(*block);
  Tier moved{std::move(tier)};
  CHECK(moved.address(*block) == where);
  CHECK(moved.used_bytes() == 5 * unit + rest / unit * unit);
  moved.deallocate(*block, 3 * unit + 1);
  moved.deallocate(*small, 1);
  moved.deallocate(*last, rest / unit * unit);
  CHECK(moved.used_bytes() == 0);
  CHECK(moved.try_allocate(capacity / unit * unit).has_value());
}

}  // namespace terrace::test
