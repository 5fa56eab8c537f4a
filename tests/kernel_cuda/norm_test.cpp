// SPDX-License-Identifier: Apache-2.0
#include <terrace/kernel/cuda/norm.hpp>
#include <terrace/kernel/reference/norm.hpp>

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

constexpr float eps = 1e-5F;

/// Every term of a sum of squares is positive, so its error is at most that of the longest chain of
/// additions; half of it is left behind the root. 64 units cover 40 additions in a chain.
void check_close(std::vector<float> const& got, std::vector<float> const& expected) {
  REQUIRE(got.size() == expected.size());
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (!(std::fabs(got[i] - expected[i]) <= 64 * 0x1p-24F * std::fabs(expected[i]))) { ++wrong; }
  }
  CHECK(wrong == 0);
}

}  // namespace

TEST_CASE("rms_norm equals plain loops for any length of rows, with and without a weight",
          "[kernel][cuda][sanitize]") {
  test_device device;
  test::generator random{11};
  auto const cols = GENERATE(
      std::size_t{1}, std::size_t{31}, std::size_t{64}, std::size_t{1000}, std::size_t{7168});
  std::size_t const tokens = 3;
  auto const x = test::random_floats(random, tokens * cols);
  auto const weight = test::random_floats(random, cols);
  auto const device_x = device.upload(x);
  auto const device_weight = device.upload(weight);
  device_array<float> const y{tokens * cols};
  std::vector<float> expected(tokens * cols);
  rms_norm(device.stream(), device_x.data(), device_weight.data(), eps, tokens, cols, y.data());
  reference::rms_norm(x.data(), weight.data(), eps, tokens, cols, expected.data());
  check_close(device.download(y), expected);
  rms_norm(device.stream(), device_x.data(), nullptr, eps, tokens, cols, y.data());
  reference::rms_norm(x.data(), nullptr, eps, tokens, cols, expected.data());
  check_close(device.download(y), expected);
}

TEST_CASE("a row of rms_norm has the same bits alone, among others and in place",
          "[kernel][cuda]") {
  test_device device;
  test::generator random{12};
  std::size_t const cols = 777;
  std::size_t const tokens = 9;
  auto const x = device.upload(test::random_floats(random, tokens * cols));
  auto const weight = device.upload(test::random_floats(random, cols));
  device_array<float> const y{tokens * cols};
  rms_norm(device.stream(), x.data(), weight.data(), eps, tokens, cols, y.data());
  auto const together = device.download(y);
  for (std::size_t t = 0; t < tokens; ++t) {
    float* const row = x.data() + t * cols;
    rms_norm(device.stream(), row, weight.data(), eps, 1, cols, row);
  }
  CHECK(test::same_bits(device.download(x), together));
}

TEST_CASE("rms_norm_part norms the first values of strided rows and leaves the rest",
          "[kernel][cuda][sanitize]") {
  test_device device;
  test::generator random{13};
  std::size_t const cols = 48;
  std::size_t const stride = 50;
  std::size_t const rows = 7;
  auto const x = test::random_floats(random, rows * stride);
  auto const weight = test::random_floats(random, cols);
  auto const device_x = device.upload(x);
  auto const device_weight = device.upload(weight);
  rms_norm_part(device.stream(), device_x.data(), stride, device_weight.data(), eps, rows, cols);
  auto expected = x;
  for (std::size_t r = 0; r < rows; ++r) {
    reference::rms_norm(
        x.data() + r * stride, weight.data(), eps, 1, cols, expected.data() + r * stride);
  }
  check_close(device.download(device_x), expected);
}

}  // namespace terrace::kernel::cuda
