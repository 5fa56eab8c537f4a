// SPDX-License-Identifier: Apache-2.0
#include <terrace/core/error.hpp>
#include <terrace/kernel/cpu/thread_pool.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace terrace::test {
namespace {

using kernel::cpu::thread_pool;

TEST_CASE("a pool calls its function once on every thread and the caller is thread 0", "[kernel]") {
  int const threads = GENERATE(1, 2, 3, 8);
  thread_pool pool{threads};
  CHECK(pool.size() == threads);
  std::vector<int> calls(static_cast<std::size_t>(threads));
  std::vector<std::thread::id> ids(static_cast<std::size_t>(threads));
  for (int i = 0; i < 200; ++i) {
    pool.run([&](int thread) {
      ++calls[static_cast<std::size_t>(thread)];
      ids[static_cast<std::size_t>(thread)] = std::this_thread::get_id();
    });
  }
  CHECK(calls == std::vector<int>(static_cast<std::size_t>(threads), 200));
  CHECK(ids[0] == std::this_thread::get_id());
}

TEST_CASE("a pool that slept wakes up", "[kernel]") {
  thread_pool pool{3};
  std::atomic<int> calls{0};
  for (int i = 0; i < 3; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds{20});
    pool.run([&](int) { ++calls; });
  }
  CHECK(calls == 9);
}

TEST_CASE("what threads wrote is visible after run", "[kernel]") {
  thread_pool pool{4};
  std::vector<std::uint64_t> values(4096);
  for (std::uint64_t round = 1; round <= 500; ++round) {
    pool.for_range(values.size(), 64, [&](std::size_t begin, std::size_t end) {
      for (std::size_t i = begin; i < end; ++i) { values[i] += round; }
    });
    REQUIRE(std::accumulate(values.begin(), values.end(), std::uint64_t{0}) ==
            values.size() * round * (round + 1) / 2);
  }
}

TEST_CASE("for_range covers every index once, in ranges cut at the grain", "[kernel]") {
  int const threads = GENERATE(1, 2, 5);
  std::size_t const n = GENERATE(0U, 1U, 7U, 64U, 1000U);
  std::size_t const grain = GENERATE(0U, 1U, 16U, 4096U);
  thread_pool pool{threads};
  std::vector<int> seen(n);
  pool.for_range(n, grain, [&](std::size_t begin, std::size_t end) {
    if (begin >= end || (grain > 1 && begin % grain != 0)) {
      throw std::logic_error{"a bad range"};
    }
    for (std::size_t i = begin; i < end; ++i) { ++seen[i]; }
  });
  CHECK(seen == std::vector<int>(n, 1));
}

TEST_CASE("the exception of the lowest thread is rethrown and the pool still works", "[kernel]") {
  thread_pool pool{4};
  for (int round = 0; round < 20; ++round) {
    std::string message;
    try {
      pool.run([](int thread) {
        if (thread >= 1) { throw std::runtime_error{std::to_string(thread)}; }
      });
    } catch (std::runtime_error const& failure) { message = failure.what(); }
    CHECK(message == "1");
  }
  std::atomic<int> calls{0};
  pool.run([&](int) { ++calls; });
  CHECK(calls == 4);
}

TEST_CASE("scratch is aligned, large enough, and a thread's own", "[kernel]") {
  thread_pool pool{2};
  std::byte* at[2] = {};
  pool.run([&](int thread) {
    for (std::size_t const bytes : {1U, 1000U, 100'000U, 10U}) {
      std::byte* const p = pool.scratch(thread, bytes);
      for (std::size_t i = 0; i < bytes; ++i) { p[i] = static_cast<std::byte>(thread); }
      at[thread] = p;
    }
  });
  CHECK(reinterpret_cast<std::uintptr_t>(at[0]) % 64 == 0);
  CHECK(reinterpret_cast<std::uintptr_t>(at[1]) % 64 == 0);
  CHECK(at[0] != at[1]);
}

TEST_CASE("a pool without threads is refused", "[kernel]") {
  CHECK_THROWS_AS(thread_pool{0}, contract_error);
  CHECK_THROWS_AS(thread_pool{-3}, contract_error);
}

}  // namespace
}  // namespace terrace::test
