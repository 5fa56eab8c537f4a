// SPDX-License-Identifier: Apache-2.0
#include <terrace/runtime/sampler.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <vector>

using Catch::Matchers::ContainsSubstring;
using terrace::runtime::argmax;
using terrace::runtime::sampler;
using terrace::runtime::sampler_options;

namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();

std::map<int, int> count_draws(sampler_options options,
                               std::vector<float> const& logits,
                               int draws) {
  sampler choose{options};
  std::map<int, int> counts;
  for (int i = 0; i < draws; ++i) { ++counts[choose.sample(logits, 0)]; }
  return counts;
}

}  // namespace

TEST_CASE("temperature zero takes the largest logit", "[runtime]") {
  sampler choose{{}};
  CHECK(choose.sample(std::array{-3.0F, 0.5F, 2.0F, 1.9F}, 0) == 2);
}

TEST_CASE("among equal logits the lowest id wins", "[runtime]") {
  CHECK(argmax(std::array{1.0F, 4.0F, 4.0F, 4.0F}, 0) == 1);
  CHECK(argmax(std::array{0.0F, -0.0F}, 0) == 0);
}

TEST_CASE("tokens ruled out by minus infinity are never chosen", "[runtime]") {
  CHECK(argmax(std::array{-infinity, -5.0F, -infinity}, 0) == 1);
  auto const counts = count_draws({.temperature = 5.0F}, {-infinity, 1.0F, -infinity, 1.0F}, 200);
  CHECK(counts.size() == 2);
  CHECK(!counts.contains(0));
  CHECK(!counts.contains(2));
}

TEST_CASE("a logit that is not a number is refused by a sentence naming position and id",
          "[runtime]") {
  CHECK_THROWS_WITH(argmax(std::array{1.0F, not_a_number}, 17),
                    ContainsSubstring("logit 1 after 17 tokens is not a number"));
  CHECK_THROWS_WITH(argmax(std::array{not_a_number, 1.0F}, 3),
                    ContainsSubstring("logit 0 after 3 tokens"));
  CHECK_THROWS_WITH(argmax(std::array{1.0F, infinity}, 0), ContainsSubstring("infinite"));
  CHECK_THROWS_AS(argmax(std::array{-infinity, -infinity}, 0), terrace::error);
  CHECK_THROWS_AS(argmax({}, 0), terrace::error);
}

TEST_CASE("draws follow the probabilities at the temperature", "[runtime]") {
  std::vector<float> const logits{std::log(0.5F), std::log(0.3F), std::log(0.2F)};
  int const draws = 20000;
  auto const plain = count_draws({.temperature = 1.0F, .seed = 7}, logits, draws);
  // Five standard deviations of a binomial share at 20000 draws are below 0.018.
  CHECK(std::abs(plain.at(0) / double{draws} - 0.5) < 0.018);
  CHECK(std::abs(plain.at(1) / double{draws} - 0.3) < 0.018);
  auto const flat = count_draws({.temperature = 2.0F, .seed = 7}, logits, draws);
  double const expected = std::sqrt(0.5) / (std::sqrt(0.5) + std::sqrt(0.3) + std::sqrt(0.2));
  CHECK(std::abs(flat.at(0) / double{draws} - expected) < 0.018);
}

TEST_CASE("top-k draws only among the k likeliest, ties going to the lowest id", "[runtime]") {
  auto const counts =
      count_draws({.temperature = 3.0F, .top_k = 2, .seed = 1}, {1.0F, 2.0F, 1.0F, 1.0F}, 500);
  CHECK(counts.size() == 2);
  CHECK(counts.contains(0));
  CHECK(counts.contains(1));
  CHECK(count_draws({.temperature = 3.0F, .top_k = 99, .seed = 1}, {1.0F, 2.0F}, 500).size() == 2);
}

TEST_CASE("top-p keeps the fewest likeliest tokens that reach it", "[runtime]") {
  std::vector<float> const logits{std::log(0.2F), std::log(0.5F), std::log(0.3F)};
  CHECK(count_draws({.temperature = 1.0F, .top_p = 0.4F, .seed = 2}, logits, 300).size() == 1);
  auto const two = count_draws({.temperature = 1.0F, .top_p = 0.7F, .seed = 2}, logits, 300);
  CHECK(two.size() == 2);
  CHECK(!two.contains(0));
  CHECK(count_draws({.temperature = 1.0F, .top_p = 0.9F, .seed = 2}, logits, 300).size() == 3);
}

TEST_CASE("min-p drops tokens far below the likeliest and never all", "[runtime]") {
  std::vector<float> const logits{std::log(0.6F), std::log(0.3F), std::log(0.1F)};
  auto const counts = count_draws({.temperature = 1.0F, .min_p = 0.4F, .seed = 3}, logits, 300);
  CHECK(counts.size() == 2);
  CHECK(!counts.contains(2));
  CHECK(count_draws({.temperature = 1.0F, .min_p = 1.0F, .seed = 3}, logits, 100).size() == 1);
}

TEST_CASE("a seed fixes the draws and another seed changes them", "[runtime]") {
  std::vector<float> const logits(64, 0.0F);
  auto const sequence = [&](std::uint64_t seed) {
    sampler choose{{.temperature = 1.0F, .seed = seed}};
    std::vector<int> ids;
    for (int i = 0; i < 32; ++i) { ids.push_back(choose.sample(logits, i)); }
    return ids;
  };
  CHECK(sequence(11) == sequence(11));
  CHECK(sequence(11) != sequence(12));
}

TEST_CASE("extreme temperatures stay inside the vocabulary", "[runtime]") {
  std::vector<float> const logits{3.0e38F, -3.0e38F, 0.0F};
  CHECK(count_draws({.temperature = 1e-30F}, logits, 50).size() == 1);
  CHECK(count_draws({.temperature = 3e38F, .seed = 5}, {1.0F, 0.0F, 2.0F}, 500).size() == 3);
}

TEST_CASE("sampler options outside their range are refused by name", "[runtime]") {
  CHECK_THROWS_WITH(sampler({.temperature = -1.0F}), ContainsSubstring("temperature"));
  CHECK_THROWS_WITH(sampler({.temperature = not_a_number}), ContainsSubstring("temperature"));
  CHECK_THROWS_WITH(sampler({.temperature = infinity}), ContainsSubstring("temperature"));
  CHECK_THROWS_WITH(sampler({.top_k = -1}), ContainsSubstring("top-k"));
  CHECK_THROWS_WITH(sampler({.top_p = 0.0F}), ContainsSubstring("top-p"));
  CHECK_THROWS_WITH(sampler({.top_p = 1.5F}), ContainsSubstring("top-p"));
  CHECK_THROWS_WITH(sampler({.min_p = not_a_number}), ContainsSubstring("min-p"));
}
