// SPDX-License-Identifier: Apache-2.0
#include "support/archetypes.hpp"
#include "support/failing_tier.hpp"
#include "support/manual_ticket.hpp"
#include "support/memory_home.hpp"
#include "support/recording_tier.hpp"

#include <terrace/concepts/copy_path.hpp>
#include <terrace/core/error.hpp>
#include <terrace/tier/dram.hpp>

#include <catch2/catch_test_macros.hpp>

#include <array>
#include <cstddef>
#include <exception>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace terrace::test {
namespace {

// Each near miss breaks one requirement.
struct touch_may_throw : eviction_archetype {
  using eviction_archetype::eviction_archetype;
  void touch(block_id) {}
};
struct forget_may_throw : eviction_archetype {
  using eviction_archetype::eviction_archetype;
  void forget(block_id) {}
};
struct tick_may_throw : eviction_archetype {
  using eviction_archetype::eviction_archetype;
  void tick() {}
};
struct victim_without_predicate : eviction_archetype {
  using eviction_archetype::eviction_archetype;
  std::optional<block_id> victim() { return std::nullopt; }
};
struct victim_always_named : eviction_archetype {
  using eviction_archetype::eviction_archetype;
  block_id victim(bool (&)(block_id)) { return {}; }
};
struct without_options {
  void admit(block_id, std::size_t) {}
  void touch(block_id) noexcept {}
  void forget(block_id) noexcept {}
  std::optional<block_id> victim(bool (&)(block_id)) { return std::nullopt; }
  void tick() noexcept {}
};
static_assert(eviction_policy<eviction_archetype>);
static_assert(!eviction_policy<touch_may_throw> && !eviction_policy<forget_may_throw>);
static_assert(!eviction_policy<tick_may_throw> && !eviction_policy<victim_without_predicate>);
static_assert(!eviction_policy<victim_always_named> && !eviction_policy<without_options>);

struct admits_without_an_answer {
  void admit(block_id) {}
};
static_assert(admission_policy<admission_archetype> && !admission_policy<admits_without_an_answer>);

struct suggests_without_a_count : prefetch_archetype {
  void suggest(std::span<block_id>) {}
};
struct deaf_to_hints {
  void observe(access const&) {}
  std::size_t suggest(std::span<block_id>) { return 0; }
};
static_assert(prefetch_policy<prefetch_archetype>);
static_assert(!prefetch_policy<suggests_without_a_count> && !prefetch_policy<deaf_to_hints>);

struct free_may_throw : tier_archetype {
  void deallocate(handle, std::size_t) {}
};
struct allocates_or_throws : tier_archetype {
  handle try_allocate(std::size_t) { return {}; }
};
struct capacity_may_throw : tier_archetype {
  std::size_t capacity_bytes() const { return 0; }
};
struct readable_without_address : tier_archetype {
  static constexpr tier_traits traits{.host_readable = true};
};
static_assert(memory_tier<tier_archetype> && !memory_tier<free_may_throw>);
static_assert(!memory_tier<allocates_or_throws> && !memory_tier<capacity_may_throw>);
static_assert(!host_readable_tier<tier_archetype> && !host_readable_tier<readable_without_address>);
static_assert(host_readable_tier<recording_tier<dram>> && host_readable_tier<failing_tier<dram>>);

struct home_that_blocks : home_archetype {
  void read(std::span<file_read const>) {}
};
struct home_without_mode {
  static constexpr std::string_view name = "mute";
  ticket read(std::span<file_read const>) { return {}; }
  std::size_t staging_bytes() const noexcept { return 0; }
};
static_assert(home_tier<home_archetype> && !home_tier<home_that_blocks> &&
              !home_tier<home_without_mode>);
static_assert(copyable_to<memory_home, dram> && !copyable_to<home_archetype, dram>);

std::vector<std::byte> counting(std::size_t count) {
  std::vector<std::byte> bytes(count);
  for (std::size_t i = 0; i < count; ++i) { bytes[i] = static_cast<std::byte>(i); }
  return bytes;
}

}  // namespace

TEST_CASE("a default ticket is done", "[concepts]") {
  ticket done;
  CHECK(done.ready());
  CHECK_NOTHROW(done.wait());
}

TEST_CASE("a ticket reports its error from wait, once", "[concepts]") {
  manual_ticket work;
  ticket waiting = work.get();
  CHECK_FALSE(waiting.ready());
  work.fail(std::make_exception_ptr(io_error{"broken", 5}));
  CHECK(waiting.ready());
  CHECK_THROWS_AS(waiting.wait(), io_error);
  CHECK_NOTHROW(waiting.wait());
}

TEST_CASE("destroying or replacing a ticket waits for it", "[concepts]") {
  manual_ticket work;
  int waits = 0;
  work.when_waited([&] {
    ++waits;
    work.complete();
  });
  { ticket dropped = work.get(); }
  CHECK(waits == 1);

  manual_ticket other;
  other.when_waited([&] {
    ++waits;
    other.complete();
  });
  ticket replaced = other.get();
  replaced = ticket{};
  CHECK(waits == 2);
}

TEST_CASE("a memory home ends its reads in the order the test chooses", "[concepts]") {
  memory_home home{{counting(64), counting(16)}};
  std::array<std::byte, 8> first{};
  std::array<std::byte, 4> second{};
  std::array const a{file_read{{file_id{0}, 10, 8}, first.data()}};
  std::array const b{file_read{{file_id{1}, 2, 4}, second.data()}};
  ticket one = home.read(a);
  ticket two = home.read(b);
  CHECK(first[0] == std::byte{0xA5});
  home.release(1);
  CHECK(two.ready());
  CHECK_FALSE(one.ready());
  CHECK(second[3] == std::byte{5});
  one.wait();  // waiting ends it
  CHECK(first[7] == std::byte{17});
  CHECK(home.started() == 2);
}

TEST_CASE("a memory home refuses what lies outside its files and can break down", "[concepts]") {
  memory_home home{{counting(16)}};
  std::array<std::byte, 16> to{};
  std::array const outside{file_read{{file_id{0}, 10, 7}, to.data()}};
  CHECK_THROWS_AS(home.read(outside).wait(), io_error);
  std::array const inside{file_read{{file_id{0}, 10, 6}, to.data()}};
  ticket late = home.read(inside);
  home.break_down();
  CHECK_THROWS_AS(late.wait(), io_error);
}

TEST_CASE("a recording tier notes what was granted, refused and freed", "[concepts]") {
  recording_tier tier{dram{1U << 20U}};
  auto const notes = tier.recorded();
  auto const at = tier.try_allocate(4096);
  REQUIRE(at.has_value());
  CHECK_FALSE(tier.try_allocate(1U << 21U).has_value());
  tier.deallocate(*at, 4096);
  CHECK(notes->allocated == std::vector<std::size_t>{4096});
  CHECK(notes->freed == std::vector<std::size_t>{4096});
  CHECK(notes->refused == 1);
  CHECK(notes->peak_bytes >= 4096);
}

TEST_CASE("a failing tier throws from the allocation it was told", "[concepts]") {
  failing_tier tier{dram{1U << 20U}, 1};
  auto const at = tier.try_allocate(4096);
  REQUIRE(at.has_value());
  CHECK_THROWS_AS(tier.try_allocate(4096), io_error);
  tier.deallocate(*at, 4096);
}

}  // namespace terrace::test
