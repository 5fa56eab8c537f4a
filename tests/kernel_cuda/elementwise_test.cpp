// SPDX-License-Identifier: Apache-2.0
#include <terrace/core/error.hpp>
#include <terrace/kernel/cpu/elementwise.hpp>
#include <terrace/kernel/cuda/elementwise.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <kernel_cuda/numbers.hpp>
#include <kernel_cuda/support.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace terrace::kernel::cuda {

TEST_CASE("add sums any number of values, those at the end of a block included",
          "[kernel][cuda][sanitize]") {
  test_device device;
  for (std::size_t const n :
       {std::size_t{1}, std::size_t{255}, std::size_t{256}, std::size_t{1000}}) {
    std::vector<float> x(n);
    std::vector<float> y(n);
    for (std::size_t i = 0; i < n; ++i) {
      x[i] = static_cast<float>(i);
      y[i] = 0.5F;
    }
    auto const device_x = device.upload(x);
    auto const device_y = device.upload(y);
    add(device.stream(), device_x.data(), n, device_y.data());
    std::vector<float> const sum = device.download(device_y);
    for (std::size_t i = 0; i < n; ++i) { CHECK(sum[i] == static_cast<float>(i) + 0.5F); }
  }
}

TEST_CASE("add and swiglu give the same bits wherever their values lie",
          "[kernel][cuda][sanitize]") {
  test_device device;
  test::generator random{3};
  std::size_t const n = 512;
  auto const a = device.upload(test::random_floats(random, n + 1));
  auto const b = test::random_floats(random, n + 1);
  std::vector<float> results[2][2];
  for (std::size_t const shift : {0U, 1U}) {  // four values at a time, and one
    auto x = test::random_floats(random, n + 1);
    auto const host_a = device.download(a);
    for (std::size_t i = 0; i < n; ++i) { x[shift + i] = host_a[i]; }
    auto y = b;
    for (std::size_t i = 0; i < n; ++i) { y[shift + i] = b[i]; }
    auto const from = device.upload(x);
    auto const sum = device.upload(y);
    auto const product = device.upload(y);
    add(device.stream(), from.data() + shift, n, sum.data() + shift);
    swiglu(device.stream(), from.data() + shift, sum.data() + shift, n, product.data() + shift);
    auto const all_sums = device.download(sum);
    auto const all_products = device.download(product);
    results[shift][0].assign(all_sums.begin() + shift, all_sums.begin() + shift + n);
    results[shift][1].assign(all_products.begin() + shift, all_products.begin() + shift + n);
  }
  CHECK(test::same_bits(results[0][0], results[1][0]));
  CHECK(test::same_bits(results[0][1], results[1][1]));
}

TEST_CASE("swiglu is silu(gate) * up, in place too, and passes what is not a number",
          "[kernel][cuda]") {
  test_device device;
  test::generator random{4};
  auto const n = GENERATE(std::size_t{1}, std::size_t{300}, std::size_t{1024});
  auto gate = test::random_floats(random, n, 20.0F);
  auto const up = test::random_floats(random, n);
  gate[0] = -200.0F;  // e^200 is infinite, silu of it is -0
  if (n > 2) {
    gate[1] = 200.0F;
    gate[2] = std::numeric_limits<float>::quiet_NaN();
  }
  auto const device_gate = device.upload(gate);
  auto const device_up = device.upload(up);
  swiglu(device.stream(), device_gate.data(), device_up.data(), n, device_gate.data());
  auto const y = device.download(device_gate);
  for (std::size_t i = 0; i < n; ++i) {
    if (std::isnan(gate[i])) {
      CHECK(std::isnan(y[i]));
      continue;
    }
    double const g = gate[i];
    double const expected = g / (1.0 + std::exp(-g)) * up[i];
    // e^-g: two units in the last place; the sum, the quotient and the product: half a unit each.
    CHECK(std::fabs(y[i] - expected) <= 4 * 0x1p-23 * std::fabs(expected) + 1e-37);
  }
}

TEST_CASE("zero clears exactly the values it is given", "[kernel][cuda][sanitize]") {
  test_device device;
  auto const x = device.upload(std::vector<float>(10, 7.0F));
  zero(device.stream(), x.data() + 2, 5);
  zero(device.stream(), x.data(), 0);
  CHECK(device.download(x) == std::vector<float>{7, 7, 0, 0, 0, 0, 0, 7, 7, 7});
}

TEST_CASE("copy_columns moves a part of each row and leaves the rest", "[kernel][cuda][sanitize]") {
  test_device device;
  std::vector<float> from(3 * 5);
  for (std::size_t i = 0; i < from.size(); ++i) { from[i] = static_cast<float>(i); }
  auto const source = device.upload(from);
  auto const target = device.upload(std::vector<float>(3 * 4, -1.0F));
  copy_columns(device.stream(), source.data() + 1, 5, target.data() + 2, 4, 2, 3);
  CHECK(device.download(target) == std::vector<float>{-1, -1, 1, 2, -1, -1, 6, 7, -1, -1, 11, 12});
}

TEST_CASE("weighted rows reach their tokens, those of a token in the order given",
          "[kernel][cuda][sanitize]") {
  test_device device;
  test::generator random{5};
  std::size_t const cols = GENERATE(std::size_t{1}, std::size_t{37}, std::size_t{300});
  std::size_t const count = GENERATE(std::size_t{1}, std::size_t{9}, std::size_t{130});
  std::size_t const tokens = 70;
  auto const rows = test::random_floats(random, count * cols);
  auto const weights = test::random_floats(random, count);
  std::vector<std::uint32_t> of(count);
  for (std::size_t i = 0; i < count; ++i) { of[i] = static_cast<std::uint32_t>(i * 13 % 67); }
  auto sum = test::random_floats(random, tokens * cols);
  auto const device_rows = device.upload(rows);
  auto const device_weights = device.upload(weights);
  auto const device_of = device.upload(of);
  auto const device_sum = device.upload(sum);
  add_weighted_rows(device.stream(),
                    device_rows.data(),
                    device_of.data(),
                    device_weights.data(),
                    count,
                    cols,
                    device_sum.data());
  for (std::size_t i = 0; i < count; ++i) {
    for (std::size_t c = 0; c < cols; ++c) {
      float& one = sum[of[i] * cols + c];
      one = std::fma(weights[i], rows[i * cols + c], one);
    }
  }
  CHECK(test::same_bits(device.download(device_sum), sum));
}

TEST_CASE("a kernel refuses the host's stream", "[kernel][cuda]") {
  float value = 0;
  CHECK_THROWS_AS(add(stream_ref::host(), &value, 1, &value), contract_error);
}

TEST_CASE("activations and gates have the bits of the CPU's, in place too",
          "[kernel][cuda][sanitize]") {
  test_device device;
  cpu::thread_pool pool{1};
  test::generator random{5};
  std::size_t const n = 1000;
  auto gate = test::random_floats(random, n, 4.0F);
  auto up = test::random_floats(random, n, 40.0F);
  gate[0] = up[1] = 0.0F;
  gate[2] = 500.0F;
  up[3] = -500.0F;
  gate[4] = 1e-6F;
  for (gated_activation const& how :
       {gated_activation{},
        gated_activation{
            .type = gated_activation::kind::situ, .beta = 2.0F, .linear_beta = 16.0F}}) {
    auto expected = gate;
    cpu::activate(pool, how, gate.data(), up.data(), n, expected.data());
    auto const there = device.upload(gate);
    auto const there_up = device.upload(up);
    activate(device.stream(), how, there.data(), there_up.data(), n, there.data());
    CHECK(test::same_bits(device.download(there), expected));
  }
  auto expected = up;
  cpu::multiply_sigmoid(pool, gate.data(), n, expected.data());
  auto const there = device.upload(up);
  auto const there_gate = device.upload(gate);
  multiply_sigmoid(device.stream(), there_gate.data(), n, there.data());
  CHECK(test::same_bits(device.download(there), expected));
}

}  // namespace terrace::kernel::cuda
