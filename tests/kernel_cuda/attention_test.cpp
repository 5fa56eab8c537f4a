// SPDX-License-Identifier: Apache-2.0
#include <terrace/core/error.hpp>
#include <terrace/kernel/cuda/attention.hpp>
#include <terrace/kernel/cuda/decode_state.hpp>
#include <terrace/kernel/cuda/kv_cache.hpp>
#include <terrace/kernel/reference/attention.hpp>
#include <terrace/quant/half.hpp>

#include <catch2/catch_test_macros.hpp>
#include <kernel_cuda/cache_of_pages.hpp>
#include <kernel_cuda/numbers.hpp>
#include <kernel_cuda/support.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace terrace::kernel::cuda {
namespace {

constexpr std::size_t page_tokens = 32;

/// A sequence whose keys and values all lie in a cache on the device.
struct sequence {
  attention_shape shape;  ///< of the queries there are
  bool half;
  bool values_in_keys;
  std::vector<float> q, k, v;  ///< as cached: rounded when half
  test::cache_of_pages cache;

  sequence(test_device const& device,
           attention_shape const& all,
           bool is_half,
           bool shared,
           std::size_t spare_pages = 0)
      : shape{all},
        half{is_half},
        values_in_keys{shared},
        cache{device,
              all,
              (all.first_position + all.tokens + page_tokens - 1) / page_tokens + spare_pages,
              page_tokens,
              is_half,
              shared} {
    test::generator random{static_cast<unsigned>(all.d_k + all.first_position)};
    std::size_t const positions = shape.first_position + shape.tokens;
    q = test::random_floats(random, shape.tokens * shape.heads * shape.d_k);
    k = test::random_floats(random, positions * shape.kv_heads * shape.d_k);
    v = test::random_floats(random, positions * shape.kv_heads * shape.d_v);
    for (auto* const values : {&k, &v}) {
      if (half) {
        for (float& one : *values) { one = quant::f16_to_f32(quant::f32_to_f16(one)); }
      }
    }
    if (values_in_keys) {
      for (std::size_t p = 0; p < positions; ++p) {
        std::copy_n(k.begin() + p * shape.d_k, shape.d_v, v.begin() + p * shape.d_v);
      }
    }
    cache.fill(0xFF);  // NaN: what lies behind the last position must not count
    auto const state = device.upload(std::vector<decode_state>{{.position = 0}});
    auto const device_k = device.upload(k);
    auto const device_v = device.upload(v);
    attention_shape stored = shape;
    stored.tokens = positions;
    stored.first_position = 0;
    store_kv(device.stream(),
             stored,
             state.data(),
             device_k.data(),
             values_in_keys ? nullptr : device_v.data(),
             cache.view());
    shim::synchronize(device.stream());
  }

  /// Attention of tokens [begin, end). The host knows only that the position is at least `known`.
  [[nodiscard]] std::vector<float> run(test_device const& device,
                                       std::size_t begin,
                                       std::size_t end,
                                       bool know_position = true) const {
    attention_shape part = shape;
    part.tokens = end - begin;
    part.first_position = know_position ? shape.first_position + begin : 0;
    auto const position = static_cast<std::uint32_t>(shape.first_position + begin);
    auto const state = device.upload(std::vector<decode_state>{{.position = position}});
    std::size_t const row = shape.heads * shape.d_k;
    auto const queries =
        device.upload(std::vector<float>(q.begin() + begin * row, q.begin() + end * row));
    device_array<float> const out{part.tokens * shape.heads * shape.d_v};
    kv_pages const pages = cache.view();
    device_array<std::byte> const scratch{
        attention_scratch_bytes(part, pages.pages.size() * page_tokens) + 1};
    attention(device.stream(),
              numerics::exact,
              {.shape = part,
               .state = state.data(),
               .q = queries.data(),
               .cache = pages,
               .out = out.data(),
               .scratch = scratch.data()});
    return device.download(out);
  }

  /// The same in plain loops, for all tokens.
  [[nodiscard]] std::vector<float> expected() const {
    std::vector<float> out(shape.tokens * shape.heads * shape.d_v);
    reference::attention({shape.tokens,
                          shape.heads,
                          shape.kv_heads,
                          shape.d_k,
                          shape.d_v,
                          shape.first_position,
                          shape.scale,
                          q.data(),
                          k.data(),
                          v.data()},
                         out.data());
    return out;
  }
};

/// A score is off by at most d_k half units of the sum of its terms' sizes, a weight by as much
/// again plus what the exponential adds; values are averages. Random values keep scores below 16
/// and values below 5: 1e-4 is three times the worst case that d_k = 80 allows, and far below what
/// a wrong position or head would change.
void check_close(std::vector<float> const& got, std::vector<float> const& expected) {
  REQUIRE(got.size() == expected.size());
  float largest = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    float const off = std::fabs(got[i] - expected[i]);
    largest = off <= largest ? largest : off;  // NaN stays
  }
  CHECK(largest <= 1e-4F);
}

attention_shape grouped(std::size_t tokens, std::size_t first_position) {
  return {.tokens = tokens,
          .heads = 6,
          .kv_heads = 2,
          .d_k = 24,
          .d_v = 20,
          .first_position = first_position,
          .scale = 0.2F};
}
attention_shape latent(std::size_t tokens, std::size_t first_position) {
  return {.tokens = tokens,
          .heads = 9,
          .kv_heads = 1,
          .d_k = 75,
          .d_v = 66,
          .first_position = first_position,
          .scale = 0.12F};
}

}  // namespace

TEST_CASE("grouped attention on a device equals plain loops", "[kernel][cuda][sanitize]") {
  test_device device;
  for (bool const half : {false, true}) {
    for (auto const& shape : {grouped(1, 0), grouped(1, 600), grouped(3, 254), grouped(23, 0)}) {
      CAPTURE(half, shape.tokens, shape.first_position);
      sequence const one{device, shape, half, false, 3};
      check_close(one.run(device, 0, shape.tokens), one.expected());
    }
  }
}

TEST_CASE("absorbed latent attention, whose values are part of the keys, equals plain loops",
          "[kernel][cuda][sanitize]") {
  test_device device;
  for (bool const half : {false, true}) {
    for (auto const& shape : {latent(1, 5), latent(2, 511), latent(9, 250)}) {
      CAPTURE(half, shape.tokens, shape.first_position);
      sequence const one{device, shape, half, true, 1};
      check_close(one.run(device, 0, shape.tokens), one.expected());
    }
  }
}

TEST_CASE("values of more dimensions than a block has threads are summed as well",
          "[kernel][cuda]") {
  test_device device;
  attention_shape const shape{.tokens = 2,
                              .heads = 3,
                              .kv_heads = 1,
                              .d_k = 300,
                              .d_v = 290,
                              .first_position = 300,
                              .scale = 0.06F};
  sequence const one{device, shape, false, true};
  check_close(one.run(device, 0, shape.tokens), one.expected());
}

TEST_CASE("a token's attention has the same bits in any chunk and with any list of pages",
          "[kernel][cuda]") {
  test_device device;
  auto const shape = grouped(12, 505);  // the third split begins inside
  sequence const one{device, shape, true, false};
  sequence const longer{device, shape, true, false, 40};
  auto const together = one.run(device, 0, shape.tokens);
  CHECK(test::same_bits(longer.run(device, 0, shape.tokens), together));
  for (std::size_t const chunk : {1U, 5U, 9U}) {
    std::vector<float> joined;
    for (std::size_t begin = 0; begin < shape.tokens; begin += chunk) {
      auto const part = one.run(device, begin, std::min(begin + chunk, shape.tokens));
      joined.insert(joined.end(), part.begin(), part.end());
    }
    CHECK(test::same_bits(joined, together));
  }
}

TEST_CASE("the position that counts is the one in device memory", "[kernel][cuda]") {
  test_device device;
  auto const shape = grouped(2, 300);
  sequence const one{device, shape, false, false};
  CHECK(test::same_bits(one.run(device, 0, 2, false), one.run(device, 0, 2)));
}

TEST_CASE("what a token may not see yet does not reach it, though it be no number",
          "[kernel][cuda]") {
  test_device device;
  auto const shape = grouped(4, 30);
  sequence one{device, shape, false, false};
  auto const clean = one.run(device, 0, 4);
  // The last position's keys and values become NaN; only the last token sees them.
  auto const state = device.upload(std::vector<decode_state>{{.position = 33}});
  auto const nan = device.upload(std::vector<float>(64, std::nanf("")));
  attention_shape last = shape;
  last.tokens = 1;
  last.first_position = 33;
  store_kv(device.stream(), last, state.data(), nan.data(), nan.data(), one.cache.view());
  auto const dirty = one.run(device, 0, 4);
  std::size_t const row = shape.heads * shape.d_v;
  CHECK(std::equal(clean.begin(), clean.begin() + 3 * row, dirty.begin()));
  CHECK(std::isnan(dirty[3 * row]));
}

TEST_CASE("attention that no kernel can compute is refused with the numbers", "[kernel][cuda]") {
  test_device device;
  sequence const one{device, grouped(1, 0), false, false};
  auto const refuse = [&](attention_shape const& shape) {
    CHECK_THROWS_AS(
        attention(device.stream(), numerics::exact, {.shape = shape, .cache = one.cache.view()}),
        contract_error);
  };
  auto shape = grouped(1, 0);
  shape.heads = 5;
  refuse(shape);
  shape = grouped(1, 0);
  shape.d_v = most_value_dims + 1;
  refuse(shape);
  refuse(grouped(1, page_tokens));
}

}  // namespace terrace::kernel::cuda
