// SPDX-License-Identifier: Apache-2.0
#include <terrace/model/expert_batch.hpp>

#include <catch2/catch_test_macros.hpp>

#include <cstddef>
#include <map>
#include <random>
#include <utility>
#include <vector>

using namespace terrace;

TEST_CASE("a batch lists each chosen expert once, ascending, with its tokens in order", "[model]") {
  std::vector<expert_id> const chosen{
      expert_id{5}, expert_id{2}, expert_id{2}, expert_id{7}, expert_id{5}, expert_id{0}};
  std::vector<float> const weights{0.1F, 0.2F, 0.3F, 0.4F, 0.5F, 0.6F};
  model::expert_batch batch;
  batch.assign(chosen, weights, 2, 8);
  REQUIRE(batch.entries().size() == 4);
  CHECK(batch.entries()[0].expert == expert_id{0});
  CHECK(batch.entries()[3].expert == expert_id{7});
  auto const& two = batch.entries()[1];
  REQUIRE(two.expert == expert_id{2});
  CHECK(std::vector(batch.tokens(two).begin(), batch.tokens(two).end()) ==
        std::vector<std::uint32_t>{0, 1});
  CHECK(std::vector(batch.weights(two).begin(), batch.weights(two).end()) ==
        std::vector<float>{0.2F, 0.3F});
}

TEST_CASE("a batch of random choices loses and invents nothing", "[model]") {
  std::mt19937 random{11};
  model::expert_batch batch;
  for (std::size_t tokens : {1U, 3U, 64U}) {
    std::vector<expert_id> chosen;
    std::vector<float> weights;
    std::multimap<std::pair<std::uint32_t, std::uint32_t>, float> want;
    for (std::uint32_t t = 0; t < tokens; ++t) {
      for (int k = 0; k < 4; ++k) {
        auto const expert =
            static_cast<std::uint32_t>(random() % 16 * 4 + static_cast<unsigned>(k));
        chosen.push_back(expert_id{expert});
        weights.push_back(static_cast<float>(random() % 1000));
        want.emplace(std::pair{expert, t}, weights.back());
      }
    }
    batch.assign(chosen, weights, 4, 64);
    std::multimap<std::pair<std::uint32_t, std::uint32_t>, float> got;
    for (auto const& one : batch.entries()) {
      for (std::size_t i = 0; i < one.count; ++i) {
        got.emplace(std::pair{static_cast<std::uint32_t>(one.expert), batch.tokens(one)[i]},
                    batch.weights(one)[i]);
      }
    }
    CHECK(got == want);
  }
}
