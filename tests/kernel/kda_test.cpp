// SPDX-License-Identifier: Apache-2.0
#include "kernel/support.hpp"

#include <terrace/core/error.hpp>
#include <terrace/kernel/cpu/elementwise.hpp>
#include <terrace/kernel/cpu/kda.hpp>
#include <terrace/kernel/cpu/residual_bank.hpp>
#include <terrace/kernel/reference/expert_ffn.hpp>
#include <terrace/kernel/reference/kda.hpp>
#include <terrace/kernel/reference/residual_bank.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <cmath>
#include <cstddef>
#include <vector>

namespace terrace::test {
namespace {

double distance(std::vector<float> const& a, std::vector<float> const& b) {
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference += (double{a[i]} - b[i]) * (double{a[i]} - b[i]);
    norm += double{b[i]} * b[i];
  }
  return std::sqrt(difference / norm);
}

/// Random inputs of one layer, and what either implementation makes of them.
struct layer_run {
  kda_shape shape;
  std::size_t tokens;
  std::vector<float> q, k, v, z, beta, rate, dt_bias, start;

  layer_run(kda_shape const& of, std::size_t count, unsigned seed) : shape{of}, tokens{count} {
    generator random{seed};
    for (auto* one : {&q, &k, &v, &z}) { *one = random_floats(random, tokens * shape.width()); }
    beta = random_floats(random, tokens * shape.heads, 2);
    rate = random_floats(random, shape.heads);
    for (float& one : rate) { one = std::exp(one); }
    dt_bias = random_floats(random, shape.width());
    start = random_floats(random, shape.matrix_values(), 0.2F);
  }
  struct result {
    std::vector<float> out, state;
  };
  result reference() const {
    result r{std::vector<float>(q.size()), start};
    kernel::reference::kda(
        shape,
        {q.data(), k.data(), v.data(), z.data(), beta.data(), rate.data(), dt_bias.data()},
        tokens,
        r.state.data(),
        r.out.data());
    return r;
  }
  result in_chunks(int threads, std::size_t chunk) const {
    kernel::cpu::thread_pool pool{threads};
    result r{std::vector<float>(q.size()), start};
    auto copy = *this;
    for (std::size_t t = 0; t < tokens; t += chunk) {
      std::size_t const at = t * shape.width();
      kernel::cpu::kda(pool,
                       shape,
                       {copy.q.data() + at,
                        copy.k.data() + at,
                        v.data() + at,
                        copy.z.data() + at,
                        copy.beta.data() + t * shape.heads,
                        rate.data(),
                        dt_bias.data()},
                       std::min(chunk, tokens - t),
                       r.state.data(),
                       r.out.data() + at);
    }
    return r;
  }
};

TEST_CASE("kda agrees with plain loops in double, both decays, narrow and wide heads", "[kernel]") {
  auto const decay = GENERATE(kda_decay::bounded, kda_decay::softplus);
  std::size_t const dim = GENERATE(16U, 48U, 64U, 128U);
  layer_run const run{{.heads = 3, .dim = dim, .decay = decay}, 100, 7};
  auto const expected = run.reference();
  auto const got = run.in_chunks(2, 100);
  CHECK(distance(got.out, expected.out) < 2e-6);
  CHECK(distance(got.state, expected.state) < 2e-6);
}

TEST_CASE("the state of kda has the same bits however the tokens were cut", "[kernel]") {
  layer_run const run{{.heads = 4, .dim = 64}, 130, 8};
  auto const whole = run.in_chunks(1, 130);
  for (std::size_t const chunk : {1U, 7U, 16U, 64U}) {
    auto const cut = run.in_chunks(2, chunk);
    CHECK(same_bits(cut.out, whole.out));
    CHECK(same_bits(cut.state, whole.state));
  }
}

TEST_CASE("the bound of the decay and the order of decay and prediction change kda", "[kernel]") {
  layer_run run{{.heads = 2, .dim = 32}, 20, 9};
  auto const expected = run.reference();
  run.shape.bound = -4;
  CHECK(distance(run.in_chunks(1, 20).out, expected.out) > 1e-2);
}

TEST_CASE("a short convolution agrees with plain loops across any cut", "[kernel]") {
  std::size_t const taps = GENERATE(2U, 4U, 5U);
  kda_shape const shape{.heads = 3, .dim = 32, .taps = taps};
  generator random{10};
  std::size_t const tokens = 40, width = shape.width();
  auto const x = random_floats(random, tokens * width);
  auto const weights = random_floats(random, width * taps);
  auto const before = random_floats(random, shape.history_values());
  auto expected_history = before;
  std::vector<float> expected(x.size());
  kernel::reference::short_convolution(
      x.data(), weights.data(), taps, tokens, width, expected_history.data(), expected.data());
  for (std::size_t const chunk : {1U, 2U, 7U, 40U}) {
    kernel::cpu::thread_pool pool{2};
    auto history = before;
    auto y = x;
    for (std::size_t t = 0; t < tokens; t += chunk) {
      kernel::cpu::short_convolution(pool,
                                     shape,
                                     y.data() + t * width,
                                     weights.data(),
                                     std::min(chunk, tokens - t),
                                     history.data());
    }
    CHECK(distance(y, expected) < 1e-6);
    CHECK(same_bits(history, expected_history));
  }
}

TEST_CASE("kda refuses heads and taps it has no loop for", "[kernel]") {
  CHECK_THROWS_AS(kernel::cpu::check_kda({.heads = 2, .dim = 40}), contract_error);
  CHECK_THROWS_AS(kernel::cpu::check_kda({.heads = 2, .dim = 64, .taps = 9}), contract_error);
  CHECK_THROWS_AS(kernel::cpu::check_kda({.heads = 0, .dim = 64}), contract_error);
}

TEST_CASE("gated_norm agrees with plain loops, in place too", "[kernel]") {
  generator random{11};
  auto x = random_floats(random, 12 * 72);
  auto const gate = random_floats(random, x.size(), 3);
  auto const weight = random_floats(random, 72);
  std::vector<float> expected(x.size());
  kernel::reference::gated_norm(
      x.data(), weight.data(), gate.data(), 1e-5F, 12, 72, expected.data());
  kernel::cpu::thread_pool pool{2};
  kernel::cpu::gated_norm(pool, x.data(), weight.data(), gate.data(), 1e-5F, 12, 72, x.data());
  CHECK(distance(x, expected) < 1e-6);
}

TEST_CASE("SiTU agrees with plain loops from tiny to saturated values", "[kernel]") {
  float const deviation = GENERATE(1e-4F, 0.1F, 3.0F, 60.0F);
  generator random{12};
  auto const gate = random_floats(random, 1000, deviation);
  auto const up = random_floats(random, 1000, deviation);
  std::vector<float> expected(1000), y(1000);
  kernel::reference::situ(gate.data(), up.data(), 4, 25, 1000, expected.data());
  kernel::cpu::thread_pool pool{1};
  gated_activation const situ{gated_activation::kind::situ, 4, 25};
  kernel::cpu::activate(pool, situ, gate.data(), up.data(), 1000, y.data());
  for (std::size_t i = 0; i < 1000; ++i) {
    REQUIRE(std::fabs(y[i] - expected[i]) <= 2e-6F * std::fabs(expected[i]) + 1e-30F);
  }
}

TEST_CASE("mix_bank agrees with plain loops for one to nine candidates", "[kernel]") {
  std::size_t const count = GENERATE(1U, 2U, 9U);
  std::size_t const tokens = 5, cols = 200;
  generator random{13};
  std::vector<std::vector<float>> candidates;
  std::vector<float const*> list;
  for (std::size_t i = 0; i < count; ++i) {
    candidates.push_back(random_floats(random, tokens * cols, 1.0F + static_cast<float>(i)));
  }
  for (auto const& one : candidates) { list.push_back(one.data()); }
  auto const weight = random_floats(random, cols, 0.1F);
  std::vector<float> expected(tokens * cols), shares(tokens * count), y(tokens * cols),
      s(tokens * count);
  kernel::reference::mix_bank(
      list, weight.data(), 1e-5F, tokens, cols, expected.data(), shares.data());
  kernel::cpu::thread_pool pool{2};
  kernel::cpu::mix_bank(pool, list, weight.data(), 1e-5F, tokens, cols, s.data(), y.data());
  CHECK(distance(y, expected) < 1e-6);
  CHECK(distance(s, shares) < 1e-6);
}

}  // namespace
}  // namespace terrace::test
