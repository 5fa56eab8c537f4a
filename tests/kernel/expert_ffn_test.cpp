// SPDX-License-Identifier: Apache-2.0
#include "kernel/support.hpp"

#include <terrace/core/error.hpp>
#include <terrace/kernel/cpu/expert_ffn.hpp>
#include <terrace/kernel/reference/expert_ffn.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace terrace::test {
namespace {

using kernel::cpu::expert_task;

struct expert {
  matrix gate, up, down;
  std::vector<std::uint32_t> tokens;
};

/// Experts with the given numbers of tokens out of `from`, in mixed order.
std::vector<expert> random_experts(std::vector<std::size_t> const& counts,
                                   std::size_t from,
                                   generator& random) {
  constexpr quant_type types[] = {
      quant_type::q4_k, quant_type::mxfp4, quant_type::q6_k, quant_type::q2_k, quant_type::bf16};
  std::vector<expert> experts;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    expert e{
        random_matrix(types[i % 5], 96, 256, random, 0.05F),
        random_matrix(types[(i + 1) % 5], 96, 256, random, 0.05F),
        random_matrix(i % 2 == 0 ? quant_type::q8_0 : quant_type::q4_0, 256, 96, random, 0.05F),
        {}};
    for (std::size_t t = 0; t < counts[i]; ++t) {
      e.tokens.push_back(static_cast<std::uint32_t>((7 * t + i) % from));
    }
    experts.push_back(std::move(e));
  }
  return experts;
}

std::vector<std::vector<float>> outputs(std::vector<expert> const& experts,
                                        numerics mode,
                                        std::vector<float> const& x,
                                        int threads) {
  kernel::cpu::thread_pool pool{threads};
  kernel::cpu::activations input;
  input.assign(pool, mode, x.data(), x.size() / 256, 256, 256);
  std::vector<std::vector<float>> out;
  for (auto const& e : experts) { out.emplace_back(e.tokens.size() * 256, -1.0F); }
  std::vector<expert_task> tasks;
  for (std::size_t i = 0; i < experts.size(); ++i) {
    auto const& e = experts[i];
    tasks.push_back({e.gate.view, e.up.view, e.down.view, e.tokens, out[i].data()});
  }
  kernel::cpu::ffn_scratch scratch;
  kernel::cpu::expert_ffn(pool, input, tasks, scratch);
  return out;
}

TEST_CASE("an expert's output has the bits of matmul, swiglu and matmul", "[kernel]") {
  numerics const mode = GENERATE(numerics::exact, numerics::fast);
  int const threads = GENERATE(1, 2, 8);
  generator random{21};
  auto const experts = random_experts({1, 1, 3, 0, 7, 40, 1, 64}, 64, random);
  auto const x = random_floats(random, 64 * 256);
  auto const out = outputs(experts, mode, x, threads);
  kernel::cpu::thread_pool pool{1};
  for (std::size_t i = 0; i < experts.size(); ++i) {
    for (std::size_t t = 0; t < experts[i].tokens.size(); ++t) {
      auto const token = experts[i].tokens[t];
      std::vector<float> const row(x.begin() + token * 256, x.begin() + (token + 1) * 256);
      auto hidden = product(experts[i].gate.view, mode, row, 1);
      auto const up = product(experts[i].up.view, mode, row, 1);
      kernel::cpu::swiglu(pool, hidden.data(), up.data(), hidden.size(), hidden.data());
      auto const alone = product(experts[i].down.view, mode, hidden, 1);
      CHECK(same_bits(alone, {out[i].data() + t * 256, 256}));
    }
  }
}

TEST_CASE("an expert's output agrees with plain loops", "[kernel]") {
  generator random{22};
  auto const experts = random_experts({2, 5, 20}, 32, random);
  auto const x = random_floats(random, 32 * 256);
  numerics const mode = GENERATE(numerics::exact, numerics::fast);
  auto const out = outputs(experts, mode, x, 2);
  for (std::size_t i = 0; i < experts.size(); ++i) {
    auto const& e = experts[i];
    std::vector<float> rows;
    for (auto const t : e.tokens) {
      rows.insert(rows.end(), x.begin() + t * 256, x.begin() + (t + 1) * 256);
    }
    std::vector<float> expected(rows.size());
    kernel::reference::expert_ffn(
        e.gate.view, e.up.view, e.down.view, rows.data(), e.tokens.size(), expected.data());
    double error = 0;
    double norm = 0;
    for (std::size_t k = 0; k < expected.size(); ++k) {
      error += std::pow(double{out[i][k]} - double{expected[k]}, 2);
      norm += std::pow(double{expected[k]}, 2);
    }
    // Two products and one elementwise step of about 256 terms; 8-bit activations have steps of
    // about 1/127 of the largest of 32 values, 0.6 % of the deviation of Gaussian data, and enter
    // twice.
    CHECK(std::sqrt(error / norm) < (mode == numerics::exact ? 2e-6 : 0.03));
  }
}

TEST_CASE("no experts and experts without tokens are fine", "[kernel]") {
  generator random{23};
  auto const x = random_floats(random, 256);
  CHECK(outputs({}, numerics::fast, x, 2).empty());
  CHECK(outputs(random_experts({0, 0}, 1, random), numerics::fast, x, 2)[1].empty());
}

TEST_CASE("experts whose shapes disagree, or tokens that do not exist, are refused", "[kernel]") {
  generator random{24};
  auto const x = random_floats(random, 2 * 256);
  auto experts = random_experts({1}, 1, random);
  experts[0].tokens[0] = 2;
  CHECK_THROWS_AS(outputs(experts, numerics::fast, x, 1), contract_error);
  experts[0].tokens[0] = 1;
  experts[0].up.view.rows = 64;
  CHECK_THROWS_AS(outputs(experts, numerics::fast, x, 1), contract_error);
  experts[0].up.view.rows = 96;
  experts[0].down.view.cols = 64;
  CHECK_THROWS_AS(outputs(experts, numerics::fast, x, 1), contract_error);
}

TEST_CASE("swiglu agrees with plain loops and keeps what is not finite", "[kernel]") {
  generator random{25};
  kernel::cpu::thread_pool pool{2};
  std::size_t const n = GENERATE(1U, 15U, 16U, 17U, 1000U, 40'000U);
  auto gate = random_floats(random, n, 20.0F);
  auto const up = random_floats(random, n);
  std::vector<float> y(n);
  std::vector<float> expected(n);
  kernel::cpu::swiglu(pool, gate.data(), up.data(), n, y.data());
  kernel::reference::swiglu(gate.data(), up.data(), n, expected.data());
  for (std::size_t i = 0; i < n; ++i) {
    REQUIRE(std::fabs(y[i] - expected[i]) <= 1e-6F * std::fabs(expected[i]) + 1e-37F);
  }
  gate[0] = std::numeric_limits<float>::quiet_NaN();
  kernel::cpu::swiglu(pool, gate.data(), up.data(), n, gate.data());
  CHECK(std::isnan(gate[0]));
}

TEST_CASE("add and add_scaled touch every value once", "[kernel]") {
  generator random{26};
  kernel::cpu::thread_pool pool{3};
  std::size_t const n = GENERATE(1U, 17U, 100'003U);
  auto const x = random_floats(random, n);
  auto const y = random_floats(random, n);
  auto sum = y;
  auto scaled = y;
  kernel::cpu::add(pool, x.data(), n, sum.data());
  kernel::cpu::add_scaled(pool, 0.25F, x.data(), n, scaled.data());
  for (std::size_t i = 0; i < n; ++i) {
    REQUIRE(sum[i] == x[i] + y[i]);
    REQUIRE(std::fabs(scaled[i] - (y[i] + 0.25F * x[i])) <= 1e-6F);
  }
}

}  // namespace
}  // namespace terrace::test
