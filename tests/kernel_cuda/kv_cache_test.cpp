// SPDX-License-Identifier: Apache-2.0
#include <terrace/core/error.hpp>
#include <terrace/kernel/cuda/decode_state.hpp>
#include <terrace/kernel/cuda/kv_cache.hpp>
#include <terrace/quant/half.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <kernel_cuda/cache_of_pages.hpp>
#include <kernel_cuda/numbers.hpp>
#include <kernel_cuda/support.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

namespace terrace::kernel::cuda {
namespace {

/// Value i of a cached row.
float cached(std::byte const* row, std::size_t i, bool half) {
  if (half) {
    std::uint16_t bits = 0;
    std::memcpy(&bits, row + 2 * i, sizeof bits);
    return quant::f16_to_f32(bits);
  }
  float value = 0;
  std::memcpy(&value, row + 4 * i, sizeof value);
  return value;
}

attention_shape shape_of(std::size_t tokens, std::size_t first_position) {
  return {.tokens = tokens,
          .heads = 2,
          .kv_heads = 2,
          .d_k = 5,
          .d_v = 3,
          .first_position = first_position,
          .scale = 1};
}

}  // namespace

TEST_CASE("keys and values of a step lie in the pages of their positions and nowhere else",
          "[kernel][cuda][sanitize]") {
  test_device device;
  test::generator random{31};
  bool const half = GENERATE(false, true);
  bool const shared = GENERATE(false, true);
  auto const shape = shape_of(6, 9);  // positions 9 to 14, pages of 4: across three pages
  test::cache_of_pages const cache{device, shape, 5, 4, half, shared};
  cache.fill(0);
  auto const k = test::random_floats(random, shape.tokens * shape.kv_heads * shape.d_k);
  auto const v = test::random_floats(random, shape.tokens * shape.kv_heads * shape.d_v);
  auto const state = device.upload(std::vector<decode_state>{{.position = 9}});
  auto const device_k = device.upload(k);
  auto const device_v = device.upload(v);
  store_kv(device.stream(),
           shape,
           state.data(),
           device_k.data(),
           shared ? nullptr : device_v.data(),
           cache.view());
  auto const kept = cache.download();
  auto const rounded = [&](float x) { return half ? quant::f16_to_f32(quant::f32_to_f16(x)) : x; };
  for (std::size_t position = 0; position < 20; ++position) {
    bool const written = position >= 9 && position < 15;
    for (std::size_t head = 0; head < 2; ++head) {
      for (std::size_t i = 0; i < shape.d_k; ++i) {
        float const expected =
            written ? rounded(k[((position - 9) * 2 + head) * shape.d_k + i]) : 0.0F;
        CHECK(cached(kept.view().key(position, head), i, half) == expected);
      }
      for (std::size_t i = 0; i < (shared ? 0 : shape.d_v); ++i) {
        float const expected =
            written ? rounded(v[((position - 9) * 2 + head) * shape.d_v + i]) : 0.0F;
        CHECK(cached(kept.view().value(position, head), i, half) == expected);
      }
    }
  }
}

TEST_CASE("a step behind the last page is refused, and one that the device finds there not written",
          "[kernel][cuda]") {
  test_device device;
  auto const shape = shape_of(1, 8);
  test::cache_of_pages const cache{device, shape, 2, 4, false, false};
  cache.fill(0);
  auto const state = device.upload(std::vector<decode_state>{{.position = 8}});
  auto const k = device.upload(std::vector<float>(10, 1.0F));
  CHECK_THROWS_AS(store_kv(device.stream(), shape, state.data(), k.data(), k.data(), cache.view()),
                  contract_error);
  store_kv(device.stream(), shape_of(1, 0), state.data(), k.data(), k.data(), cache.view());
  for (std::byte const one : cache.download().memory) { REQUIRE(one == std::byte{0}); }
}

}  // namespace terrace::kernel::cuda
