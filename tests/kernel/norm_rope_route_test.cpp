// SPDX-License-Identifier: Apache-2.0
#include "kernel/support.hpp"

#include <terrace/core/error.hpp>
#include <terrace/kernel/cpu/norm.hpp>
#include <terrace/kernel/cpu/rope.hpp>
#include <terrace/kernel/cpu/route.hpp>
#include <terrace/kernel/reference/norm.hpp>
#include <terrace/kernel/reference/rope.hpp>
#include <terrace/kernel/reference/route.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <set>
#include <vector>

namespace terrace::test {
namespace {

TEST_CASE("rms_norm agrees with plain loops, in place too", "[kernel]") {
  std::size_t const cols = GENERATE(1U, 15U, 64U, 576U, 1000U, 7168U);
  generator random{41};
  kernel::cpu::thread_pool pool{2};
  auto x = random_floats(random, 9 * cols);
  auto const weight = random_floats(random, cols);
  float const* const factors = GENERATE(true, false) ? weight.data() : nullptr;
  std::vector<float> expected(x.size());
  kernel::reference::rms_norm(x.data(), factors, 1e-5F, 9, cols, expected.data());
  std::vector<float> y(x.size());
  kernel::cpu::rms_norm(pool, x.data(), factors, 1e-5F, 9, cols, y.data());
  kernel::cpu::rms_norm(pool, x.data(), factors, 1e-5F, 9, cols, x.data());
  CHECK(same_bits(x, y));
  for (std::size_t i = 0; i < y.size(); ++i) {
    REQUIRE(std::fabs(y[i] - expected[i]) <=
            1e-6F * std::fabs(expected[i]));  // a few roundings, squares do not cancel
  }
}

TEST_CASE("rms_norm of a token has the same bits in any company", "[kernel]") {
  generator random{42};
  auto const x = random_floats(random, 200 * 576);
  std::vector<float> together(x.size());
  std::vector<float> alone(x.size());
  kernel::cpu::thread_pool pool{3};
  kernel::cpu::rms_norm(pool, x.data(), nullptr, 1e-6F, 200, 576, together.data());
  for (std::size_t t = 0; t < 200; ++t) {
    kernel::cpu::rms_norm(pool, x.data() + t * 576, nullptr, 1e-6F, 1, 576, alone.data() + t * 576);
  }
  CHECK(same_bits(together, alone));
}

TEST_CASE("rms_norm of zeros is zero and of NaN is NaN", "[kernel]") {
  kernel::cpu::thread_pool pool{1};
  std::vector<float> x(2 * 40);
  x[47] = std::numeric_limits<float>::quiet_NaN();
  kernel::cpu::rms_norm(pool, x.data(), nullptr, 1e-6F, 2, 40, x.data());
  CHECK(std::all_of(x.begin(), x.begin() + 40, [](float v) { return v == 0.0F; }));
  CHECK(std::all_of(x.begin() + 40, x.end(), [](float v) { return std::isnan(v); }));
}

TEST_CASE("rope rotates the asked dimensions of every head by the position's angle", "[kernel]") {
  bool const half_split = GENERATE(false, true);
  std::size_t const tokens = GENERATE(1U, 3U, 50U);
  generator random{43};
  kernel::cpu::thread_pool pool{2};
  std::vector<float> const freqs = [] {
    std::vector<float> f(24);
    for (std::size_t i = 0; i < f.size(); ++i) {
      f[i] = std::pow(50000.0F, -static_cast<float>(i) / 24.0F);
    }
    return f;
  }();
  std::vector<std::uint32_t> positions(tokens);
  std::iota(positions.begin(), positions.end(), 997U);
  kernel::cpu::rope_table table;
  table.assign(positions, freqs, 1.0F);
  auto x = random_floats(random, tokens * 5 * 80);
  auto expected = x;
  for (std::size_t row = 0; row < tokens * 5; ++row) {
    kernel::reference::rope(
        expected.data() + row * 80 + 16, positions[row / 5], freqs.data(), 24, half_split);
  }
  auto const pairing = half_split ? rope_pairing::half_split : rope_pairing::interleaved;
  kernel::cpu::rope(pool,
                    x.data(),
                    {.tokens = tokens,
                     .heads = 5,
                     .head_stride = 80,
                     .first_dim = 16,
                     .n_rot = 48,
                     .pairing = pairing},
                    table);
  for (std::size_t i = 0; i < x.size(); ++i) {
    std::size_t const dim = i % 80;
    if (dim < 16 || dim >= 64) {
      REQUIRE(x[i] == expected[i]);
    } else {
      REQUIRE(std::fabs(x[i] - expected[i]) <= 1e-6F);  // two products of values below 5
    }
  }
}

TEST_CASE("rope multiplies by its magnitude and refuses a table of another shape", "[kernel]") {
  kernel::cpu::thread_pool pool{1};
  std::vector<std::uint32_t> const positions{0};
  std::vector<float> const freqs{1.0F, 0.5F};
  kernel::cpu::rope_table table;
  table.assign(positions, freqs, 1.5F);
  std::vector<float> x{1.0F, 2.0F, 3.0F, 4.0F};
  rope_shape shape{
      .tokens = 1, .heads = 1, .head_stride = 4, .n_rot = 4, .pairing = rope_pairing::half_split};
  kernel::cpu::rope(pool, x.data(), shape, table);
  CHECK(x == std::vector<float>{1.5F, 3.0F, 4.5F, 6.0F});
  shape.tokens = 2;
  CHECK_THROWS_AS(kernel::cpu::rope(pool, x.data(), shape, table), contract_error);
  shape = {.tokens = 1,
           .heads = 1,
           .head_stride = 4,
           .first_dim = 2,
           .n_rot = 4,
           .pairing = rope_pairing::half_split};
  CHECK_THROWS_AS(kernel::cpu::rope(pool, x.data(), shape, table), contract_error);
}

std::vector<std::size_t> as_numbers(std::vector<expert_id> const& ids) {
  std::vector<std::size_t> numbers;
  for (auto const id : ids) { numbers.push_back(static_cast<std::size_t>(id)); }
  return numbers;
}

TEST_CASE("the sigmoid router chooses and weighs like plain loops", "[kernel]") {
  std::size_t const experts = GENERATE(8U, 48U, 384U);
  bool const normalise = GENERATE(true, false);
  generator random{static_cast<unsigned>(experts)};
  kernel::cpu::thread_pool pool{2};
  std::size_t const tokens = 40;
  auto const logits = random_floats(random, tokens * experts);
  auto const bias = random_floats(random, experts, 0.1F);
  std::vector<expert_id> ids(tokens * 6);
  std::vector<float> weights(tokens * 6);
  kernel::cpu::route_sigmoid(
      pool,
      {.experts = experts, .top_k = 6, .normalise = normalise, .scale = 2.827F},
      logits.data(),
      bias.data(),
      tokens,
      ids.data(),
      weights.data());
  auto const numbers = as_numbers(ids);
  for (std::size_t t = 0; t < tokens; ++t) {
    std::vector<float> const row(logits.begin() + t * experts, logits.begin() + (t + 1) * experts);
    auto const expected = kernel::reference::route_sigmoid(row, bias, 6, normalise, 2.827F);
    CHECK(std::equal(expected.experts.begin(), expected.experts.end(), numbers.begin() + t * 6));
    for (std::size_t k = 0; k < 6; ++k) {
      CHECK(std::fabs(weights[t * 6 + k] - expected.weights[k]) < 2e-6F);
    }
  }
}

TEST_CASE("equal scores go to the lower expert and NaN scores come last", "[kernel]") {
  kernel::cpu::thread_pool pool{1};
  std::vector<float> logits(20, 0.5F);
  logits[0] = std::numeric_limits<float>::quiet_NaN();
  logits[17] = 0.75F;
  std::vector<expert_id> ids(3);
  std::vector<float> weights(3);
  kernel::cpu::route_sigmoid(
      pool, {.experts = 20, .top_k = 3}, logits.data(), nullptr, 1, ids.data(), weights.data());
  CHECK(as_numbers(ids) == std::vector<std::size_t>{17, 1, 2});
  std::fill(logits.begin(), logits.end(), std::numeric_limits<float>::quiet_NaN());
  kernel::cpu::route_sigmoid(
      pool, {.experts = 20, .top_k = 3}, logits.data(), nullptr, 1, ids.data(), weights.data());
  CHECK(as_numbers(ids) == std::vector<std::size_t>{0, 1, 2});
  CHECK(std::isnan(weights[0]));
}

TEST_CASE("a router that chooses none or more than all is refused", "[kernel]") {
  kernel::cpu::thread_pool pool{1};
  std::vector<float> const logits(4);
  std::vector<expert_id> ids(5);
  std::vector<float> weights(5);
  CHECK_THROWS_AS(
      kernel::cpu::route_sigmoid(
          pool, {.experts = 4, .top_k = 0}, logits.data(), nullptr, 1, ids.data(), weights.data()),
      contract_error);
  CHECK_THROWS_AS(
      kernel::cpu::route_sigmoid(
          pool, {.experts = 4, .top_k = 5}, logits.data(), nullptr, 1, ids.data(), weights.data()),
      contract_error);
}

}  // namespace
}  // namespace terrace::test
