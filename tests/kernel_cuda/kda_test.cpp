// SPDX-License-Identifier: Apache-2.0
#include <terrace/core/error.hpp>
#include <terrace/kernel/cuda/kda.hpp>
#include <terrace/kernel/cuda/norm.hpp>
#include <terrace/kernel/reference/kda.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <kernel_cuda/numbers.hpp>
#include <kernel_cuda/support.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

namespace terrace::kernel::cuda {
namespace {

double distance(std::vector<float> const& a, std::vector<float> const& b) {
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference += (double{a[i]} - b[i]) * (double{a[i]} - b[i]);
    norm += double{b[i]} * b[i];
  }
  return std::sqrt(difference / norm);
}

/// Random inputs of one layer, and what kernels and plain loops make of them.
struct layer_run {
  kda_shape shape;
  std::size_t tokens;
  std::vector<float> q, k, v, z, beta, logarithm, dt_bias, start;

  layer_run(kda_shape const& of, std::size_t count, unsigned seed) : shape{of}, tokens{count} {
    test::generator random{seed};
    for (auto* one : {&q, &k, &v, &z}) {
      *one = test::random_floats(random, tokens * shape.width());
    }
    beta = test::random_floats(random, tokens * shape.heads, 2);
    logarithm = test::random_floats(random, shape.heads);
    dt_bias = test::random_floats(random, shape.width());
    start = test::random_floats(random, shape.state_values(), 0.2F);
  }
  struct result {
    std::vector<float> out, state;
  };
  [[nodiscard]] result reference() const {
    result r{std::vector<float>(q.size()), start};
    std::vector<float> rate = logarithm;
    for (float& one : rate) { one = std::exp(one); }
    reference::kda(
        shape,
        {q.data(), k.data(), v.data(), z.data(), beta.data(), rate.data(), dt_bias.data()},
        tokens,
        r.state.data(),
        r.out.data());
    r.state.resize(shape.matrix_values());
    return r;
  }
  /// `negated`: the rate as GGUF has it, -e^A_log.
  [[nodiscard]] result in_chunks(test_device const& device,
                                 std::size_t chunk,
                                 bool negated = false) const {
    auto rates = logarithm;
    if (negated) {
      for (float& one : rates) { one = -std::exp(one); }
    }
    auto const there_q = device.upload(q);
    auto const there_k = device.upload(k);
    auto const there_v = device.upload(v);
    auto const there_z = device.upload(z);
    auto const there_beta = device.upload(beta);
    auto const there_rate = device.upload(rates);
    auto const there_bias = device.upload(dt_bias);
    auto const state = device.upload(start);
    auto const pages =
        device.upload(std::vector<std::byte*>{reinterpret_cast<std::byte*>(state.data())});
    device_array<float> out{q.size()};
    for (std::size_t t = 0; t < tokens; t += chunk) {
      std::size_t const at = t * shape.width();
      kda(device.stream(),
          shape,
          {.q = there_q.data() + at,
           .k = there_k.data() + at,
           .v = there_v.data() + at,
           .z = there_z.data() + at,
           .beta = there_beta.data() + t * shape.heads,
           .rate = there_rate.data(),
           .dt_bias = there_bias.data(),
           .rate_is_logarithm = !negated},
          std::min(chunk, tokens - t),
          pages.data(),
          out.data() + at);
    }
    result r{device.download(out), device.download(state)};
    r.state.resize(shape.matrix_values());
    return r;
  }
};

TEST_CASE("kda agrees with plain loops in double, both decays and both spellings of the rate",
          "[kernel][cuda][sanitize]") {
  test_device device;
  auto const decay = GENERATE(kda_decay::bounded, kda_decay::softplus);
  std::size_t const dim = GENERATE(16U, 48U, 128U);
  layer_run const run{{.heads = 2, .dim = dim, .decay = decay}, 20, 7};
  auto const expected = run.reference();
  for (bool const negated : {false, true}) {
    auto const got = run.in_chunks(device, 20, negated);
    CAPTURE(dim, negated);
    CHECK(distance(got.out, expected.out) < 2e-6);
    CHECK(distance(got.state, expected.state) < 2e-6);
  }
}

TEST_CASE("kda of heads wider than 256 agrees with plain loops", "[kernel][cuda][sanitize]") {
  test_device device;
  layer_run const run{{.heads = 1, .dim = 272}, 3, 8};
  auto const expected = run.reference();
  auto const got = run.in_chunks(device, 3);
  CHECK(distance(got.out, expected.out) < 2e-6);
  CHECK(distance(got.state, expected.state) < 2e-6);
}

TEST_CASE("the state of kda has the same bits however the tokens were cut", "[kernel][cuda]") {
  test_device device;
  layer_run const run{{.heads = 2, .dim = 64}, 40, 9};
  auto const whole = run.in_chunks(device, 40);
  for (std::size_t const chunk : {1U, 7U, 16U}) {
    auto const cut = run.in_chunks(device, chunk);
    CHECK(test::same_bits(cut.out, whole.out));
    CHECK(test::same_bits(cut.state, whole.state));
  }
}

TEST_CASE("a short convolution agrees with plain loops across any cut",
          "[kernel][cuda][sanitize]") {
  test_device device;
  std::size_t const taps = GENERATE(2U, 4U, 5U);
  std::size_t const which = GENERATE(0U, 2U);
  kda_shape const shape{.heads = 3, .dim = 32, .taps = taps};
  test::generator random{10};
  std::size_t const tokens = 40, width = shape.width();
  auto const x = test::random_floats(random, tokens * width);
  auto const weights = test::random_floats(random, width * taps);
  auto const before = test::random_floats(random, shape.state_values());
  auto expected_state = before;
  std::vector<float> expected(x.size());
  reference::short_convolution(x.data(),
                               weights.data(),
                               taps,
                               tokens,
                               width,
                               expected_state.data() + shape.history_offset(which),
                               expected.data());
  auto const there_taps = device.upload(weights);
  for (std::size_t const chunk : {1U, 2U, 7U, 40U}) {
    auto const state = device.upload(before);
    auto const pages =
        device.upload(std::vector<std::byte*>{reinterpret_cast<std::byte*>(state.data())});
    auto const y = device.upload(x);
    for (std::size_t t = 0; t < tokens; t += chunk) {
      short_convolution(device.stream(),
                        shape,
                        which,
                        there_taps.data(),
                        std::min(chunk, tokens - t),
                        pages.data(),
                        y.data() + t * width);
    }
    CHECK(distance(device.download(y), expected) < 1e-6);
    CHECK(test::same_bits(device.download(state), expected_state));
  }
}

TEST_CASE("kda refuses heads and taps it has no kernel for", "[kernel][cuda]") {
  test_device device;
  for (kda_shape const& shape : {kda_shape{.heads = 2, .dim = 40},
                                 kda_shape{.heads = 2, .dim = 2048},
                                 kda_shape{.heads = 2, .dim = 64, .taps = 9},
                                 kda_shape{.heads = 0, .dim = 64}}) {
    CHECK_THROWS_AS(kda(device.stream(), shape, {}, 1, nullptr, nullptr), contract_error);
  }
}

TEST_CASE("gated_norm agrees with plain loops, in place too", "[kernel][cuda][sanitize]") {
  test_device device;
  test::generator random{11};
  auto const x = test::random_floats(random, 12 * 72);
  auto const gate = test::random_floats(random, x.size(), 3);
  auto const weight = test::random_floats(random, 72);
  std::vector<float> expected(x.size());
  reference::gated_norm(x.data(), weight.data(), gate.data(), 1e-5F, 12, 72, expected.data());
  auto const there = device.upload(x);
  auto const there_gate = device.upload(gate);
  auto const there_weight = device.upload(weight);
  gated_norm(device.stream(),
             there.data(),
             there_weight.data(),
             there_gate.data(),
             1e-5F,
             12,
             72,
             there.data());
  CHECK(distance(device.download(there), expected) < 1e-6);
}

}  // namespace
}  // namespace terrace::kernel::cuda
