// SPDX-License-Identifier: Apache-2.0
#include <terrace/core/error.hpp>
#include <terrace/kernel/cuda/residual_bank.hpp>
#include <terrace/kernel/reference/residual_bank.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <kernel_cuda/numbers.hpp>
#include <kernel_cuda/support.hpp>

#include <cmath>
#include <cstddef>
#include <vector>

namespace terrace::kernel::cuda {

TEST_CASE("a residual bank is mixed as plain loops in double do", "[kernel][cuda][sanitize]") {
  test_device device;
  std::size_t const count = GENERATE(1U, 2U, 9U);
  std::size_t const tokens = GENERATE(1U, 5U);
  bool const has_factor = GENERATE(false, true);
  std::size_t const cols = 200;
  test::generator random{3};
  auto weight = test::random_floats(random, cols);
  auto const factor = test::random_floats(random, cols);
  std::vector<std::vector<float>> candidates;
  std::vector<device_array<float>> there;
  std::vector<float const*> here_at, there_at;
  for (std::size_t n = 0; n < count; ++n) {
    candidates.push_back(test::random_floats(random, tokens * cols));
  }
  for (auto const& one : candidates) {
    there.push_back(device.upload(one));
    here_at.push_back(one.data());
    there_at.push_back(there.back().data());
  }
  auto const there_weight = device.upload(weight);
  auto const there_factor = device.upload(factor);
  device_array<float> scores{tokens * count}, shares{tokens * count}, y{tokens * cols};
  mix_bank(device.stream(),
           there_at,
           there_weight.data(),
           has_factor ? there_factor.data() : nullptr,
           1e-6F,
           tokens,
           cols,
           scores.data(),
           shares.data(),
           y.data());
  if (has_factor) {
    for (std::size_t i = 0; i < cols; ++i) { weight[i] *= factor[i]; }
  }
  std::vector<float> expected(tokens * cols), expected_shares(tokens * count);
  reference::mix_bank(
      here_at, weight.data(), 1e-6F, tokens, cols, expected.data(), expected_shares.data());
  auto const got = device.download(y);
  auto const got_shares = device.download(shares);
  for (std::size_t i = 0; i < got.size(); ++i) {
    CHECK(std::fabs(got[i] - expected[i]) <= 2e-5F * (1 + std::fabs(expected[i])));
  }
  for (std::size_t i = 0; i < got_shares.size(); ++i) {
    CHECK(std::fabs(got_shares[i] - expected_shares[i]) <= 2e-5F);
  }
}

TEST_CASE("an empty residual bank and one of too many vectors are refused", "[kernel][cuda]") {
  test_device device;
  for (std::size_t const count : {std::size_t{0}, most_candidates + 1}) {
    std::vector<float const*> const candidates(count, nullptr);
    CHECK_THROWS_AS(
        mix_bank(
            device.stream(), candidates, nullptr, nullptr, 1e-6F, 1, 16, nullptr, nullptr, nullptr),
        contract_error);
  }
}

}  // namespace terrace::kernel::cuda
