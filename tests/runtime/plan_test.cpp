// SPDX-License-Identifier: Apache-2.0
#include <terrace/runtime/plan.hpp>

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <cstdint>

namespace {

using namespace terrace;
using namespace terrace::runtime;

block_id dense(std::uint32_t index) { return make_block_id(block_kind::dense, no_layer, index); }

/// Embedding of 100 bytes, two mixture layers (attention 40, feed-forward 10, eight experts of 20),
/// a head of 60.
requirements mixture() {
  requirements needs;
  needs.experts = 8;
  needs.top_k = 2;
  needs.mixture_layers = 2;
  needs.state_bytes = 30;
  needs.steps = {{{{dense(0), 100}}, 0},
                 {{{dense(1), 40}}, 0},
                 {{{dense(2), 10}}, 20},
                 {{{dense(3), 40}}, 0},
                 {{{dense(4), 10}}, 20},
                 {{{dense(5), 60}}, 0}};
  return needs;
}

bool pins(plan const& how, std::uint32_t index) {
  return std::find(how.pinned.begin(), how.pinned.end(), dense(index)) != how.pinned.end();
}

}  // namespace

TEST_CASE("the smallest capacity a refusal names is accepted and one byte less is not",
          "[runtime]") {
  auto const needs = mixture();
  std::uint64_t smallest = 0;
  try {
    static_cast<void>(make_plan(needs, {.capacity_bytes = 1, .staging_bytes = 7}));
    FAIL("a capacity of one byte was accepted");
  } catch (out_of_capacity const& refusal) { smallest = refusal.needed_bytes(); }
  CHECK(smallest == 30 + 7 + 100);
  CHECK_THROWS_AS(make_plan(needs, {.capacity_bytes = smallest - 1, .staging_bytes = 7}),
                  out_of_capacity);
  CHECK(make_plan(needs, {.capacity_bytes = smallest, .staging_bytes = 7}).minimum_bytes ==
        smallest);
}

TEST_CASE("what fits is pinned and the largest step always keeps its room", "[runtime]") {
  auto const needs = mixture();
  for (std::uint64_t capacity = 130; capacity < 800; ++capacity) {
    auto const how = make_plan(needs, {.capacity_bytes = capacity});
    REQUIRE(how.state_bytes + how.pinned_bytes + how.working_bytes <= capacity);
    REQUIRE(how.predicted_peak_bytes <= capacity);
  }
  auto const roomy = make_plan(needs, {.capacity_bytes = 10000});
  CHECK(roomy.pinned.size() == 6);
  CHECK(roomy.expert_slots == 16);
  CHECK(roomy.predicted_peak_bytes == 30 + 260 + 16 * 20);
  auto const tight = make_plan(needs, {.capacity_bytes = 30 + 100 + 40 + 10 + 40});
  CHECK(pins(tight, 0));
  CHECK_FALSE(pins(tight, 5));  // the largest of the steps that are left needs the rest
}

TEST_CASE("expert slots below top-k are refused with the number that works", "[runtime]") {
  auto const needs = mixture();
  try {
    static_cast<void>(make_plan(needs, {.capacity_bytes = 10000, .expert_slots = 1}));
    FAIL("one slot was accepted");
  } catch (out_of_capacity const& refusal) { CHECK(refusal.needed_bytes() == 2); }
  CHECK(make_plan(needs, {.capacity_bytes = 10000, .expert_slots = 2}).expert_slots == 2);
}

TEST_CASE("blocks placed elsewhere are neither pinned nor counted, those to pin are pinned first",
          "[runtime]") {
  auto const needs = mixture();
  auto const how = make_plan(
      needs, {.capacity_bytes = 30 + 60 + 40 + 10, .must_pin = {dense(5)}, .not_here = {dense(0)}});
  CHECK(pins(how, 5));
  CHECK_FALSE(pins(how, 0));
}

TEST_CASE("blocks placed at home are counted while in use and never pinned", "[runtime]") {
  auto const needs = mixture();
  auto const how = make_plan(needs, {.capacity_bytes = 10000, .not_kept = {dense(0)}});
  CHECK_FALSE(pins(how, 0));
  CHECK(how.working_bytes == 100);
}

TEST_CASE("experts placed in another level need no room here", "[runtime]") {
  auto needs = mixture();
  needs.steps[2].layer = layer_id{0};
  needs.steps[2].expert_bytes = 5000;
  CHECK_THROWS_AS(make_plan(needs, {.capacity_bytes = 5000}), out_of_capacity);
  auto const how = make_plan(
      needs, {.capacity_bytes = 5000, .not_here = {expert_block(layer_id{0}, expert_id{0})}});
  CHECK(how.minimum_bytes == 30 + 100);
}

TEST_CASE("a tied head is counted once", "[runtime]") {
  auto needs = mixture();
  needs.steps.back().dense = {{dense(0), 100}};
  CHECK(needs.dense_bytes() == 200);
  CHECK(make_plan(needs, {.capacity_bytes = 10000}).pinned_bytes == 200);
}

TEST_CASE("pinned experts take slots and leave their layer none to stream", "[runtime]") {
  auto needs = mixture();
  needs.steps[2].layer = layer_id{0};
  needs.steps[4].layer = layer_id{1};
  plan_request request{.capacity_bytes = 10000, .expert_slots = 9};
  for (std::uint32_t expert = 0; expert < 8; ++expert) {
    request.must_pin.push_back(expert_block(layer_id{1}, expert_id{expert}));
  }
  try {
    static_cast<void>(make_plan(needs, request));
    FAIL("nine slots were accepted, eight of which are pinned");
  } catch (out_of_capacity const& refusal) { CHECK(refusal.needed_bytes() == 8 + 2); }
  request.expert_slots = 10;
  auto const how = make_plan(needs, request);
  CHECK(how.pinned.size() == 6 + 8);
  CHECK(how.pinned_bytes == 260 + 8 * 20);
  CHECK(how.predicted_peak_bytes == 30 + 260 + 8 * 20 + 2 * 20);
}

TEST_CASE("the predicted peak counts no more experts than there are slots", "[runtime]") {
  auto const how = make_plan(mixture(), {.capacity_bytes = 10000, .expert_slots = 3});
  CHECK(how.predicted_peak_bytes == 30 + 260 + 3 * 20);
}
