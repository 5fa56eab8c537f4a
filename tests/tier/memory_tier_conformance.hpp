// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/concepts/memory_tier.hpp>

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <random>
#include <utility>
#include <vector>

namespace terrace::test {

/// How a test writes and reads a tier's memory: here as the host's own.
struct host_access {
  void fill(std::byte* at, int value, std::size_t bytes) const { std::memset(at, value, bytes); }
  [[nodiscard]] bool holds(std::byte const* at, int value, std::size_t bytes) const {
    return std::all_of(at, at + bytes, [&](std::byte b) { return b == std::byte(value); });
  }
};

/// What the concept promises of any tier of at least 64 granules that is empty.
template <memory_tier Tier, class Access = host_access>
void check_memory_tier(Tier tier, Access const& memory = {}) {
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

  memory.fill(tier.address(*block), 0x5A, 3 * unit + 1);
  memory.fill(tier.address(*small), 0x11, 1);
  CHECK(memory.holds(tier.address(*block), 0x5A, 3 * unit + 1));

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

/// Random blocks of a few sizes come and go: none touches another, the tier holds no more than
/// `most_held` at any instant, and room that is free is had.
template <memory_tier Tier, class Access = host_access>
void check_random_use(Tier tier, std::size_t most_held, Access const& memory = {}) {
  struct block {
    typename Tier::handle at;
    std::size_t bytes;
    int value;
  };
  std::mt19937 random{7};
  std::vector<block> live;
  std::size_t const unit = Tier::traits.granularity;
  std::size_t const sizes[] = {1, unit, 3 * unit + 5, 7 * unit, 16 * unit - 1};
  auto const drop_one = [&] {
    auto const index = random() % live.size();
    REQUIRE(memory.holds(tier.address(live[index].at), live[index].value, live[index].bytes));
    tier.deallocate(live[index].at, live[index].bytes);
    live[index] = live.back();
    live.pop_back();
  };
  for (int step = 0; step < 600; ++step) {
    std::size_t const bytes = sizes[random() % std::size(sizes)];
    auto const rounded = (bytes + unit - 1) / unit * unit;
    std::size_t const used = tier.used_bytes();
    auto const at = tier.try_allocate(bytes);
    REQUIRE(at.has_value() == (used + rounded <= tier.capacity_bytes()));
    REQUIRE(tier.held_bytes() <= most_held);
    if (at) {
      live.push_back({*at, bytes, step % 256});
      REQUIRE(tier.used_bytes() == used + rounded);
      memory.fill(tier.address(*at), step % 256, bytes);
    }
    if (!at || random() % 4 == 0) { drop_one(); }
  }
  while (!live.empty()) { drop_one(); }
  CHECK(tier.used_bytes() == 0);
}

}  // namespace terrace::test
