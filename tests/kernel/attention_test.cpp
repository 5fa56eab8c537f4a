// SPDX-License-Identifier: Apache-2.0
#include "kernel/support.hpp"

#include <terrace/core/error.hpp>
#include <terrace/kernel/cpu/attention.hpp>
#include <terrace/kernel/reference/attention.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

namespace terrace::test {
namespace {

/// Keys and values of one sequence in pages of `page_tokens`; rows of a token lie together, keys
/// first. With `values_in_keys` a value is the start of its key, as in absorbed latent attention.
struct cache {
  kv_layout layout;
  std::vector<std::vector<std::byte>> memory;
  std::vector<std::byte*> pages;

  cache(attention_shape const& shape,
        std::size_t positions,
        std::size_t page_tokens,
        bool half,
        bool values_in_keys) {
    std::size_t const keys = shape.kv_heads * shape.d_k;
    std::size_t const row = keys + (values_in_keys ? 0 : shape.kv_heads * shape.d_v);
    layout = {.half = half,
              .page_tokens = page_tokens,
              .k_offset = 0,
              .k_head_stride = shape.d_k,
              .k_token_stride = row,
              .v_offset = values_in_keys ? 0 : keys,
              .v_head_stride = values_in_keys ? shape.d_k : shape.d_v,
              .v_token_stride = row};
    std::size_t const count = (positions + page_tokens - 1) / page_tokens;
    for (std::size_t i = 0; i < count; ++i) {
      memory.emplace_back(row * page_tokens * layout.element_bytes());
      pages.push_back(memory.back().data());
    }
  }
  [[nodiscard]] kv_pages view() const { return {layout, pages}; }
};

struct problem {
  attention_shape shape;
  bool values_in_keys;
  std::vector<float> q, k, v;  // k and v of all positions

  problem(attention_shape s, bool shared, unsigned seed) : shape{s}, values_in_keys{shared} {
    generator random{seed};
    std::size_t const positions = shape.first_position + shape.tokens;
    q = random_floats(random, shape.tokens * shape.heads * shape.d_k);
    k = random_floats(random, positions * shape.kv_heads * shape.d_k);
    v = random_floats(random, positions * shape.kv_heads * shape.d_v);
    if (values_in_keys) {
      for (std::size_t p = 0; p < positions; ++p) {
        std::copy_n(k.begin() + p * shape.d_k, shape.d_v, v.begin() + p * shape.d_v);
      }
    }
  }

  /// The result for tokens [begin, end) of the problem, all earlier positions being in the cache.
  [[nodiscard]] std::vector<float> run(
      std::size_t begin, std::size_t end, std::size_t page_tokens, bool half, int threads) const {
    kernel::cpu::thread_pool pool{threads};
    std::size_t const positions = shape.first_position + shape.tokens;
    cache const kept{shape, positions, page_tokens, half, values_in_keys};
    attention_shape all = shape;
    all.tokens = positions;
    all.first_position = 0;
    kernel::cpu::store_kv(pool, all, k.data(), values_in_keys ? nullptr : v.data(), kept.view());
    attention_shape part = shape;
    part.tokens = end - begin;
    part.first_position += begin;
    std::vector<float> out(part.tokens * shape.heads * shape.d_v);
    kernel::cpu::attention(
        pool, part, q.data() + begin * shape.heads * shape.d_k, kept.view(), out.data());
    return out;
  }

  [[nodiscard]] std::vector<float> expected() const {
    std::vector<float> out(shape.tokens * shape.heads * shape.d_v);
    kernel::reference::attention({shape.tokens,
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

float largest_difference(std::vector<float> const& a, std::vector<float> const& b) {
  float largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    float const difference = std::fabs(a[i] - b[i]);
    largest = difference <= largest ? largest : difference;
  }
  return largest;
}

std::vector<problem> problems() {
  return {
      {{.tokens = 1,
        .heads = 1,
        .kv_heads = 1,
        .d_k = 16,
        .d_v = 16,
        .first_position = 0,
        .scale = 0.25F},
       false,
       31},
      {{.tokens = 1,
        .heads = 9,
        .kv_heads = 3,
        .d_k = 64,
        .d_v = 64,
        .first_position = 300,
        .scale = 0.125F},
       false,
       32},
      {{.tokens = 133,
        .heads = 9,
        .kv_heads = 3,
        .d_k = 64,
        .d_v = 64,
        .first_position = 0,
        .scale = 0.125F},
       false,
       33},
      {{.tokens = 37,
        .heads = 8,
        .kv_heads = 2,
        .d_k = 24,
        .d_v = 20,
        .first_position = 50,
        .scale = 0.2F},
       false,
       34},
      {{.tokens = 21,
        .heads = 4,
        .kv_heads = 1,
        .d_k = 576,
        .d_v = 512,
        .first_position = 100,
        .scale = 0.07F},
       true,
       35},
      {{.tokens = 2,
        .heads = 16,
        .kv_heads = 1,
        .d_k = 36,
        .d_v = 32,
        .first_position = 200,
        .scale = 0.2F},
       true,
       36},
  };
}

TEST_CASE("attention agrees with plain loops", "[kernel]") {
  for (auto const& p : problems()) {
    std::size_t const page_tokens = 32;
    CAPTURE(p.shape.tokens, p.shape.d_k);
    auto const exact = p.run(0, p.shape.tokens, page_tokens, false, 2);
    // A weighted mean of values of magnitude below 5: scores are sums of d_k products off by about
    // d_k u |q| |k| scale, which is the relative error of a weight; the sums over positions add as
    // much again.
    CHECK(largest_difference(exact, p.expected()) < 5e-6F);
    auto const half = p.run(0, p.shape.tokens, page_tokens, true, 2);
    CHECK(largest_difference(half, p.expected()) <
          1e-2F);  // keys and values are rounded to 11 bits
  }
}

TEST_CASE("attention has the same bits for any number of threads, page size and chunk of tokens",
          "[kernel]") {
  bool const half = GENERATE(false, true);
  for (auto const& p : problems()) {
    CAPTURE(p.shape.tokens, p.shape.d_k, half);
    auto const whole = p.run(0, p.shape.tokens, 64, half, 1);
    CHECK(same_bits(whole, p.run(0, p.shape.tokens, 64, half, 2)));
    CHECK(same_bits(whole, p.run(0, p.shape.tokens, 7, half, 8)));
    CHECK(same_bits(whole, p.run(0, p.shape.tokens, 256, half, 3)));
    std::size_t const token = p.shape.heads * p.shape.d_v;
    for (std::size_t const step : {1U, 2U, 3U, 16U}) {
      std::vector<float> pieces;
      for (std::size_t t = 0; t < p.shape.tokens; t += step) {
        auto const piece = p.run(t, std::min(t + step, p.shape.tokens), 16, half, 2);
        pieces.insert(pieces.end(), piece.begin(), piece.end());
      }
      CHECK(pieces.size() == p.shape.tokens * token);
      CHECK(same_bits(whole, pieces));
      if (p.shape.tokens > 64 && step == 1) { break; }
    }
  }
}

TEST_CASE("attention weights one position fully when its score towers over the others",
          "[kernel]") {
  problem p{{.tokens = 1,
             .heads = 2,
             .kv_heads = 1,
             .d_k = 16,
             .d_v = 16,
             .first_position = 99,
             .scale = 1.0F},
            false,
            37};
  std::fill(p.q.begin(), p.q.end(), 1.0F);
  std::fill(p.k.begin(), p.k.end(), 0.0F);
  std::fill_n(p.k.begin() + 70 * 16, 16, 50.0F);
  auto const out = p.run(0, 1, 32, false, 2);
  CHECK(same_bits({out.data(), 16}, {p.v.data() + 70 * 16, 16}));
  CHECK(same_bits({out.data() + 16, 16}, {p.v.data() + 70 * 16, 16}));
}

TEST_CASE("attention passes on what is not finite and nothing beyond its causes", "[kernel]") {
  problem p{{.tokens = 90,
             .heads = 2,
             .kv_heads = 2,
             .d_k = 16,
             .d_v = 16,
             .first_position = 0,
             .scale = 0.25F},
            false,
            38};
  auto const clean = p.run(0, 90, 32, false, 2);
  p.k[(80 * 2 + 1) * 16] = std::numeric_limits<float>::quiet_NaN();  // position 80, head 1
  auto const out = p.run(0, 90, 32, false, 2);
  for (std::size_t t = 0; t < 90; ++t) {
    float const* const row = out.data() + t * 32;
    CHECK(same_bits({row, 16}, {clean.data() + t * 32, 16}));
    bool const touched = std::all_of(row + 16, row + 32, [](float v) { return std::isnan(v); });
    CHECK(touched == (t >= 80));
  }
}

TEST_CASE("attention refuses heads that do not divide and missing pages", "[kernel]") {
  kernel::cpu::thread_pool pool{1};
  attention_shape shape{.tokens = 1,
                        .heads = 4,
                        .kv_heads = 3,
                        .d_k = 16,
                        .d_v = 16,
                        .first_position = 0,
                        .scale = 1.0F};
  cache const kept{shape, 8, 8, false, false};
  std::vector<float> q(4 * 16);
  std::vector<float> out(4 * 16);
  CHECK_THROWS_AS(kernel::cpu::attention(pool, shape, q.data(), kept.view(), out.data()),
                  contract_error);
  shape.kv_heads = 2;
  shape.first_position = 8;
  CHECK_THROWS_AS(kernel::cpu::attention(pool, shape, q.data(), kept.view(), out.data()),
                  contract_error);
  CHECK_THROWS_AS(kernel::cpu::store_kv(pool, shape, q.data(), q.data(), kept.view()),
                  contract_error);
}

}  // namespace
}  // namespace terrace::test
