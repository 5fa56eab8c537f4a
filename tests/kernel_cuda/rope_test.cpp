// SPDX-License-Identifier: Apache-2.0
#include <terrace/core/error.hpp>
#include <terrace/core/rope_shape.hpp>
#include <terrace/kernel/cuda/decode_state.hpp>
#include <terrace/kernel/cuda/rope.hpp>
#include <terrace/kernel/reference/rope.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <kernel_cuda/numbers.hpp>
#include <kernel_cuda/support.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace terrace::kernel::cuda {
namespace {

std::vector<float> frequencies(std::size_t pairs) {
  std::vector<float> all(pairs);
  for (std::size_t i = 0; i < pairs; ++i) {
    all[i] = std::pow(10000.0F, -static_cast<float>(i) / static_cast<float>(pairs));
  }
  return all;
}

/// Angles of a step of `tokens` tokens from `position` on, on the device.
struct angles_of_step {
  angles_of_step(test_device const& device,
                 std::uint32_t position,
                 std::size_t tokens,
                 std::vector<float> const& freqs,
                 float magnitude)
      : state{device.upload(std::vector<decode_state>{{.position = position}})},
        on_device{device.upload(freqs)},
        cosine{tokens * freqs.size()},
        sine{tokens * freqs.size()},
        angles{
            .tokens = tokens, .pairs = freqs.size(), .cosine = cosine.data(), .sine = sine.data()} {
    make_angles(device.stream(), state.data(), on_device.data(), magnitude, angles);
  }
  device_array<decode_state> state;
  device_array<float> on_device, cosine, sine;
  rope_angles angles;
};

}  // namespace

TEST_CASE("angles follow the position that lies in device memory", "[kernel][cuda][sanitize]") {
  test_device device;
  auto const freqs = frequencies(5);
  angles_of_step const step{device, 131000, 3, freqs, 1.25F};
  auto const check = [&](std::uint32_t first) {
    auto const cosine = device.download(step.cosine);
    auto const sine = device.download(step.sine);
    for (std::size_t i = 0; i < cosine.size(); ++i) {
      auto const position = static_cast<float>(first + i / freqs.size());
      auto const angle = static_cast<double>(position * freqs[i % freqs.size()]);
      CHECK(std::fabs(cosine[i] - 1.25 * std::cos(angle)) <= 2 * 1.25 * 0x1p-24);
      CHECK(std::fabs(sine[i] - 1.25 * std::sin(angle)) <= 2 * 1.25 * 0x1p-24);
    }
  };
  check(131000);
  decode_state const later{.position = 131001};
  shim::copy(device.stream(), step.state.data(), &later, sizeof later);
  make_angles(device.stream(), step.state.data(), step.on_device.data(), 1.25F, step.angles);
  check(131001);
}

TEST_CASE("rope turns the pairs of both forms, whole heads and parts of heads",
          "[kernel][cuda][sanitize]") {
  test_device device;
  test::generator random{21};
  auto const pairing = GENERATE(rope_pairing::interleaved, rope_pairing::half_split);
  auto const tokens = GENERATE(std::size_t{1}, std::size_t{9});
  auto const first_dim = GENERATE(std::size_t{0}, std::size_t{6});
  rope_shape const shape{.tokens = tokens,
                         .heads = 3,
                         .head_stride = 20,
                         .first_dim = first_dim,
                         .n_rot = 12,
                         .pairing = pairing};
  auto const freqs = frequencies(shape.n_rot / 2);
  auto const x = test::random_floats(random, tokens * shape.heads * shape.head_stride);
  angles_of_step const step{device, 517, tokens, freqs, 1.0F};
  auto const device_x = device.upload(x);
  rope(device.stream(), device_x.data(), shape, step.angles);
  auto const got = device.download(device_x);
  auto expected = x;
  for (std::size_t row = 0; row < tokens * shape.heads; ++row) {
    reference::rope(expected.data() + row * shape.head_stride + first_dim,
                    static_cast<std::uint32_t>(517 + row / shape.heads),
                    freqs.data(),
                    freqs.size(),
                    pairing == rope_pairing::half_split);
  }
  for (std::size_t i = 0; i < got.size(); ++i) {
    std::size_t const dim = i % shape.head_stride;
    if (dim < first_dim || dim >= first_dim + shape.n_rot) {
      CHECK(got[i] == x[i]);
    } else {
      CHECK(std::fabs(got[i] - expected[i]) <= 4 * 0x1p-24F * 8);  // of values up to 8
    }
  }
}

TEST_CASE("a rotation that does not fit its angles is refused with the numbers", "[kernel][cuda]") {
  test_device device;
  rope_angles const angles{.tokens = 2, .pairs = 4};
  rope_shape const shape{
      .tokens = 3, .heads = 1, .head_stride = 8, .n_rot = 8, .pairing = rope_pairing::half_split};
  CHECK_THROWS_AS(rope(device.stream(), nullptr, shape, angles), contract_error);
}

}  // namespace terrace::kernel::cuda
