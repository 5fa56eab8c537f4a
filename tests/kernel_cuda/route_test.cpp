// SPDX-License-Identifier: Apache-2.0
#include <terrace/core/error.hpp>
#include <terrace/core/ids.hpp>
#include <terrace/core/sigmoid_router.hpp>
#include <terrace/kernel/cpu/route.hpp>
#include <terrace/kernel/cuda/route.hpp>
#include <terrace/kernel/reference/route.hpp>

#include <catch2/catch_test_macros.hpp>
#include <kernel_cuda/numbers.hpp>
#include <kernel_cuda/support.hpp>

#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

namespace terrace::kernel::cuda {
namespace {

struct choice {
  std::vector<expert_id> ids;
  std::vector<float> weights;
};

choice on_device(test_device const& device,
                 sigmoid_router const& router,
                 std::vector<float> const& logits,
                 std::vector<float> const* bias) {
  std::size_t const tokens = logits.size() / router.experts;
  auto const device_logits = device.upload(logits);
  auto const device_bias = device.upload(bias != nullptr ? *bias : std::vector<float>(1));
  device_array<expert_id> const ids{tokens * router.top_k};
  device_array<float> const weights{tokens * router.top_k};
  route(device.stream(),
        router,
        device_logits.data(),
        bias != nullptr ? device_bias.data() : nullptr,
        tokens,
        ids.data(),
        weights.data());
  return {device.download(ids), device.download(weights)};
}

choice on_host(sigmoid_router const& router,
               std::vector<float> const& logits,
               std::vector<float> const* bias) {
  cpu::thread_pool pool{1};
  std::size_t const tokens = logits.size() / router.experts;
  choice chosen{std::vector<expert_id>(tokens * router.top_k),
                std::vector<float>(tokens * router.top_k)};
  cpu::route_sigmoid(pool,
                     router,
                     logits.data(),
                     bias != nullptr ? bias->data() : nullptr,
                     tokens,
                     chosen.ids.data(),
                     chosen.weights.data());
  return chosen;
}

}  // namespace

TEST_CASE("a router chooses and weighs as plain loops do, and with the host's bits",
          "[kernel][cuda][sanitize]") {
  test_device device;
  test::generator random{41};
  sigmoid_router const routers[] = {{.experts = 5, .top_k = 5},
                                    {.experts = 32, .top_k = 1, .normalise = false},
                                    {.experts = 256, .top_k = 8, .scale = 2.5F},
                                    {.experts = 384, .top_k = 8, .scale = 2.827F},
                                    {.experts = 896, .top_k = 16, .scale = 1.5F},
                                    {.experts = 1024, .top_k = 40}};
  for (auto const& router : routers) {
    CAPTURE(router.experts, router.top_k);
    std::size_t const tokens = 6;
    auto const logits = test::random_floats(random, tokens * router.experts, 2.0F);
    auto const bias = test::random_floats(random, router.experts, 0.3F);
    auto const got = on_device(device, router, logits, &bias);
    auto const host = on_host(router, logits, &bias);
    CHECK(got.ids == host.ids);
    CHECK(test::same_bits(got.weights, host.weights));
    for (std::size_t t = 0; t < tokens; ++t) {
      std::vector<float> const row(logits.begin() + t * router.experts,
                                   logits.begin() + (t + 1) * router.experts);
      auto const expected =
          reference::route_sigmoid(row, bias, router.top_k, router.normalise, router.scale);
      for (std::size_t k = 0; k < router.top_k; ++k) {
        CHECK(static_cast<std::size_t>(got.ids[t * router.top_k + k]) == expected.experts[k]);
        CHECK(std::fabs(got.weights[t * router.top_k + k] - expected.weights[k]) <=
              1e-5F * router.scale);
      }
    }
    auto const unbiased = on_device(device, router, logits, nullptr);
    auto const host_unbiased = on_host(router, logits, nullptr);
    CHECK(unbiased.ids == host_unbiased.ids);
    CHECK(test::same_bits(unbiased.weights, host_unbiased.weights));
  }
}

TEST_CASE("equal scores go to the lower expert and what is no number comes last",
          "[kernel][cuda][sanitize]") {
  test_device device;
  sigmoid_router const router{.experts = 70, .top_k = 6};
  std::vector<float> logits(router.experts, -1.0F);
  logits[3] = logits[65] = logits[40] = logits[8] = 2.0F;
  logits[2] = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> const bias(router.experts, 0.0F);
  auto const got = on_device(device, router, logits, &bias);
  CHECK(got.ids ==
        std::vector<expert_id>{
            expert_id{3}, expert_id{8}, expert_id{40}, expert_id{65}, expert_id{0}, expert_id{1}});
  std::vector<float> const none(router.experts, std::numeric_limits<float>::quiet_NaN());
  CHECK(on_device(device, router, none, &bias).ids == on_host(router, none, &bias).ids);
}

TEST_CASE("a token's choice does not depend on the tokens beside it", "[kernel][cuda]") {
  test_device device;
  test::generator random{42};
  sigmoid_router const router{.experts = 100, .top_k = 7};
  auto const logits = test::random_floats(random, 9 * router.experts);
  auto const bias = test::random_floats(random, router.experts);
  auto const all = on_device(device, router, logits, &bias);
  for (std::size_t t = 0; t < 9; ++t) {
    std::vector<float> const row(logits.begin() + t * router.experts,
                                 logits.begin() + (t + 1) * router.experts);
    auto const one = on_device(device, router, row, &bias);
    for (std::size_t k = 0; k < router.top_k; ++k) {
      CHECK(one.ids[k] == all.ids[t * router.top_k + k]);
      CHECK(one.weights[k] == all.weights[t * router.top_k + k]);
    }
  }
}

TEST_CASE("a router of more experts than fit a warp is refused with the number", "[kernel][cuda]") {
  test_device device;
  CHECK_THROWS_AS(route(device.stream(),
                        {.experts = most_routed_experts + 1, .top_k = 1},
                        nullptr,
                        nullptr,
                        1,
                        nullptr,
                        nullptr),
                  contract_error);
  CHECK_THROWS_AS(
      route(device.stream(), {.experts = 4, .top_k = 5}, nullptr, nullptr, 1, nullptr, nullptr),
      contract_error);
}

}  // namespace terrace::kernel::cuda
