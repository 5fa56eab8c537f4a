// SPDX-License-Identifier: Apache-2.0
#include "synth/block_recipes.hpp"
#include "synth/filler.hpp"
#include "synth/routing_skew.hpp"

#include <terrace/core/quant_type.hpp>
#include <terrace/quant/decode.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <random>
#include <string>
#include <vector>

using namespace terrace;
using Catch::Matchers::WithinAbs;
using Catch::Matchers::WithinRel;

namespace {

struct moments {
  double mean = 0, rms = 0, largest = 0;
};
moments moments_of(std::vector<float> const& values) {
  moments found;
  for (float const value : values) {
    found.mean += value;
    found.rms += static_cast<double>(value) * value;
    found.largest = std::max(found.largest, std::abs(static_cast<double>(value)));
  }
  auto const count = static_cast<double>(values.size());
  found.mean /= count;
  found.rms = std::sqrt(found.rms / count);
  return found;
}

std::vector<float> decoded(synth::filler const& filler, quant_type type, std::size_t blocks) {
  std::vector<std::byte> bytes(blocks * traits_of(type).block_bytes);
  filler.fill(7, 0, bytes);
  std::vector<float> values(blocks * traits_of(type).block_elements);
  quant::decode_blocks(type, bytes.data(), values.size(), values.data());
  return values;
}

}  // namespace

TEST_CASE("random blocks of every type have no mean and the spread asked for", "[tools]") {
  for (auto const& recipe : synth::block_recipes) {
    for (double const sigma : {0.003, 0.0118, 0.25, 1.0}) {
      if (recipe.type == quant_type::nvfp4) { continue; }  // its size is a tensor of its own
      auto const found =
          moments_of(decoded(synth::random_blocks(recipe.type, sigma), recipe.type, 2048));
      INFO(name_of(recipe.type) << ' ' << sigma);
      CHECK_THAT(found.rms, WithinRel(sigma, 0.04));
      CHECK_THAT(found.mean, WithinAbs(0, 0.02 * sigma));
      CHECK(found.largest < 8 * sigma);  // false for NaN and infinity
    }
  }
}

TEST_CASE("every type that is computed with can be made up", "[tools]") {
  for (auto const& traits : quant_table) {
    bool const side_format = traits.type == quant_type::q8_1 || traits.type == quant_type::q8_k;
    bool const of_blocks = traits.block_elements > 1 && static_cast<unsigned>(traits.type) < 133;
    INFO(traits.name);
    CHECK((synth::find_recipe(traits.type) != nullptr) == (of_blocks && !side_format));
  }
}

TEST_CASE("random numbers are normal in every plain type", "[tools]") {
  for (quant_type const type : {quant_type::f32, quant_type::f16, quant_type::bf16}) {
    auto const values = decoded(synth::normal_values(type, 0, 0.02), type, 1U << 16U);
    auto const found = moments_of(values);
    auto const inside = std::count_if(
        values.begin(), values.end(), [](float value) { return std::abs(value) < 0.02F; });
    CHECK_THAT(found.rms, WithinRel(0.02, 0.02));
    CHECK_THAT(static_cast<double>(inside) / 65536, WithinAbs(0.6827, 0.01));
  }
}

TEST_CASE("a chunk of random bytes depends on its key and number alone", "[tools]") {
  auto const filler = synth::random_blocks(quant_type::q4_k, 0.02);
  std::vector<std::byte> first(144 * 8), again(144 * 8), short_one(144 * 3), other(144 * 8);
  filler.fill(11, 5, first);
  filler.fill(11, 5, again);
  filler.fill(11, 5, short_one);
  filler.fill(11, 6, other);
  CHECK(first == again);
  CHECK(std::equal(short_one.begin(), short_one.end(), first.begin()));
  CHECK(first != other);
}

TEST_CASE("Zipf shares sum to the experts of a token, fall by the law and stay below one",
          "[tools]") {
  auto const shares = synth::zipf_shares(384, 8, 1.0);
  CHECK_THAT(std::accumulate(shares.begin(), shares.end(), 0.0), WithinAbs(8, 1e-9));
  CHECK(shares.front() == 0.95);
  CHECK_THAT(shares[100] / shares[201], WithinRel(202.0 / 101, 1e-9));
  auto const even = synth::zipf_shares(64, 6, 0);
  CHECK_THAT(even.front(), WithinRel(6.0 / 64, 1e-9));
  CHECK_THAT(even.back(), WithinRel(6.0 / 64, 1e-9));
}

TEST_CASE("a router's bias makes its experts as frequent as their shares", "[tools]") {
  constexpr int experts = 64, top_k = 6, tokens = 20'000;
  for (double const exponent : {0.0, 0.6, 1.2}) {
    auto const bias =
        synth::dealt(synth::ranked_bias(experts, top_k, exponent), synth::random_words{3});
    std::mt19937 random{1};
    std::normal_distribution<double> logit{0, synth::router_spread};
    std::vector<double> counts(experts, 0);
    for (int token = 0; token < tokens; ++token) {
      std::vector<std::pair<double, int>> scores;
      for (int expert = 0; expert < experts; ++expert) {
        scores.emplace_back(
            1 / (1 + std::exp(-logit(random))) + bias[static_cast<std::size_t>(expert)], expert);
      }
      std::partial_sort(scores.begin(), scores.begin() + top_k, scores.end(), std::greater{});
      for (int i = 0; i < top_k; ++i) {
        ++counts[static_cast<std::size_t>(scores[static_cast<std::size_t>(i)].second)];
      }
    }
    std::sort(counts.begin(), counts.end(), std::greater{});
    auto const shares = synth::zipf_shares(experts, top_k, exponent);
    for (std::size_t rank : {0U, 3U, 15U, 31U, 63U}) {
      INFO("exponent " << exponent << ", rank " << rank);
      CHECK_THAT(counts[rank] / tokens, WithinRel(shares[rank], 0.25));
    }
  }
}
