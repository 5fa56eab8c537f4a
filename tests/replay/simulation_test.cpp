// SPDX-License-Identifier: Apache-2.0
#include "replay.hpp"
#include "support/random_source.hpp"

#include <terrace/evict/any.hpp>
#include <terrace/evict/lru.hpp>
#include <terrace/evict/oracle.hpp>
#include <terrace/evict/pinned.hpp>
#include <terrace/observe/routing_trace.hpp>
#include <terrace/prefetch/none.hpp>
#include <terrace/prefetch/trace_markov.hpp>

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace terrace::test {
namespace {

using observe::routing_trace;
using replay::outcome;
using replay::simulation;

/// Uniform, independent choices.
routing_trace uniform_trace(std::uint32_t seed, std::size_t tokens) {
  random_source random{seed};
  routing_trace trace{.layers = 3,
                      .top_k = 2,
                      .experts = 16,
                      .first_layer = 1,
                      .tokens = std::vector<std::uint16_t>(tokens),
                      .chosen = {}};
  for (std::size_t set = 0; set < tokens * trace.layers; ++set) {
    auto const first = static_cast<std::uint16_t>(random() % 16);
    trace.chosen.push_back(first);
    trace.chosen.push_back(static_cast<std::uint16_t>((first + 1 + random() % 15) % 16));
  }
  return trace;
}

/// Every token uses the same experts, in layers with a period of `period` tokens.
routing_trace periodic_trace(std::size_t tokens, std::uint32_t period) {
  routing_trace trace{.layers = 4,
                      .top_k = 2,
                      .experts = 32,
                      .first_layer = 0,
                      .tokens = std::vector<std::uint16_t>(tokens),
                      .chosen = {}};
  for (std::uint32_t token = 0; token < tokens; ++token) {
    for (std::uint32_t layer = 0; layer < trace.layers; ++layer) {
      auto const first = static_cast<std::uint16_t>(2 * (token % period));
      trace.chosen.push_back(first);
      trace.chosen.push_back(static_cast<std::uint16_t>(first + 1));
    }
  }
  return trace;
}

}  // namespace

TEST_CASE("a replay asks for every block of the trace once", "[replay]") {
  auto const trace = uniform_trace(1, 100);
  auto const result = simulation{trace, 10, evict::lru{{}}, prefetch::none{}}.run();
  CHECK(result.requests() == trace.chosen.size());
  CHECK(replay::requests_of(trace).size() == trace.chosen.size());
  CHECK(result.prefetched == 0);
}

TEST_CASE("a level that holds everything misses each block once", "[replay]") {
  auto const trace = uniform_trace(2, 500);
  auto const requests = replay::requests_of(trace);
  std::set<block_id> const distinct{requests.begin(), requests.end()};
  for (std::string_view const name : evict::any::names) {
    INFO(name);
    auto const result =
        simulation{trace, 48, evict::any{{std::string{name}}}, prefetch::none{}}.run();
    CHECK(result.misses == distinct.size());
  }
}

TEST_CASE("uniform routing hits as often as a level is large, whatever the policy", "[replay]") {
  auto const trace = uniform_trace(3, 20'000);
  for (char const* const name : {"lru", "clock", "s3_fifo", "lfu_decay"}) {
    INFO(name);
    auto const result = simulation{trace, 24, evict::any{{name}}, prefetch::none{}}.run();
    // The blocks of other layers are not asked for, so the share of residents of one layer is what
    // counts.
    CHECK(result.hit_rate() > 0.42);
    CHECK(result.hit_rate() < 0.54);
  }
}

TEST_CASE("no policy hits more than the oracle", "[replay]") {
  for (std::uint32_t seed = 1; seed <= 5; ++seed) {
    INFO("seed " << seed);
    auto const trace = uniform_trace(seed, 400);
    for (std::size_t const slots : {2U, 5U, 12U, 40U}) {
      auto const best = simulation{
          trace,
          slots,
          evict::oracle{{replay::requests_of(trace)}},
          prefetch::none{}}.run();
      for (std::string_view const name : evict::any::names) {
        INFO(name << " with " << slots);
        std::size_t const kept = name == "pinned" ? slots - trace.top_k : slots;
        auto const result =
            simulation{trace, kept, evict::any{{std::string{name}}}, prefetch::none{}}.run();
        CHECK(result.hits <= best.hits);
      }
    }
  }
}

TEST_CASE("a larger level hits no less under the oracle and under lru", "[replay]") {
  auto const trace = uniform_trace(4, 400);
  outcome last_oracle;
  outcome last_lru;
  for (std::size_t slots = 2; slots <= 48; slots += 2) {
    auto const oracle = simulation{
        trace,
        slots,
        evict::oracle{{replay::requests_of(trace)}},
        prefetch::none{}}.run();
    auto const lru = simulation{trace, slots, evict::lru{{}}, prefetch::none{}}.run();
    CHECK(oracle.hits >= last_oracle.hits);
    CHECK(lru.hits >= last_lru.hits);
    last_oracle = oracle;
    last_lru = lru;
  }
}

TEST_CASE("what is prefetched ends up used or wasted", "[replay]") {
  auto const trace = uniform_trace(5, 2000);
  auto const result =
      simulation{trace, 12, evict::lru{{}}, prefetch::trace_markov{{.least_chance = 0.0F}}}.run();
  CHECK(result.prefetched > 0);
  CHECK(result.prefetched == result.prefetch_used + result.prefetch_wasted);
}

TEST_CASE("trace_markov turns the misses of a regular trace into hits", "[replay]") {
  auto const trace = periodic_trace(400, 4);
  auto const without = simulation{trace, 8, evict::lru{{}}, prefetch::none{}}.run();
  auto const with = simulation{trace, 8, evict::lru{{}}, prefetch::trace_markov{{}}}.run();
  CHECK(without.hits == 0);  // the working set of 32 cycles through 8 slots
  CHECK(with.hit_rate() > 0.9);
}

TEST_CASE("with one set's slots nothing can be fetched ahead", "[replay]") {
  auto const trace = periodic_trace(100, 4);
  auto const result = simulation{trace, 2, evict::lru{{}}, prefetch::trace_markov{{}}}.run();
  CHECK(result.prefetched == 0);
  CHECK(result.hits == 0);
}

TEST_CASE("what finds no room passes through a pinned level", "[replay]") {
  auto const trace = periodic_trace(100, 1);  // 8 blocks for ever
  auto const result = simulation{trace, 6, evict::pinned{{}}, prefetch::none{}}.run();
  CHECK(result.hits == 6 * 99);
}

}  // namespace terrace::test
