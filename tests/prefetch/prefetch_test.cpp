// SPDX-License-Identifier: Apache-2.0
#include "concepts/prefetch_policy_conformance.hpp"

#include <terrace/core/error.hpp>
#include <terrace/core/ids.hpp>
#include <terrace/prefetch/any.hpp>
#include <terrace/prefetch/gate_lookahead.hpp>
#include <terrace/prefetch/none.hpp>
#include <terrace/prefetch/trace_markov.hpp>

#include <catch2/catch_template_test_macros.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string_view>
#include <vector>

namespace terrace::test {
namespace {

using Catch::Matchers::ContainsSubstring;

block_id block(std::uint32_t layer, std::uint32_t expert) {
  return expert_block(layer_id{layer}, expert_id{expert});
}

template <class Policy>
void use(Policy& policy, std::uint32_t layer, std::initializer_list<std::uint32_t> experts) {
  for (auto const expert : experts) { policy.observe({block(layer, expert), false}); }
}

template <class Policy>
std::vector<block_id> all_of(Policy& policy) {
  std::array<block_id, 64> out{};
  std::size_t const count = policy.suggest(out);
  return {out.begin(), out.begin() + static_cast<std::ptrdiff_t>(count)};
}

void hint(prefetch::gate_lookahead& policy,
          std::uint32_t layer,
          std::vector<std::uint32_t> const& experts,
          std::vector<float> const& scores) {
  std::vector<expert_id> ids;
  for (auto const expert : experts) { ids.push_back(expert_id{expert}); }
  policy.hint({layer_id{layer}, ids, scores});
}

using blocks = std::vector<block_id>;

}  // namespace

TEMPLATE_TEST_CASE("a prefetch policy keeps its promises",
                   "[prefetch]",
                   prefetch::none,
                   prefetch::gate_lookahead,
                   prefetch::trace_markov,
                   prefetch::any) {
  for (std::uint32_t seed = 1; seed <= 3; ++seed) {
    check_prefetch_policy(TestType{typename TestType::options{}}, seed);
  }
}

TEST_CASE("none suggests nothing", "[prefetch]") {
  prefetch::none policy;
  use(policy, 1, {1, 2});
  CHECK(all_of(policy).empty());
}

TEST_CASE("gate_lookahead suggests the nearest layer first, by score", "[prefetch]") {
  prefetch::gate_lookahead policy{{}};
  hint(policy, 5, {7, 8}, {9.0F, 8.0F});
  hint(policy, 4, {1, 2, 3}, {0.1F, 0.9F, 0.5F});
  CHECK(all_of(policy) == blocks{block(4, 2), block(4, 3), block(4, 1), block(5, 7), block(5, 8)});
  CHECK(all_of(policy).empty());
}

TEST_CASE("gate_lookahead keeps width and slack candidates per layer", "[prefetch]") {
  prefetch::gate_lookahead policy{{.width = 2, .slack = 1}};
  hint(policy, 4, {1, 2, 3, 4}, {4.0F, 3.0F, 2.0F, 1.0F});
  CHECK(all_of(policy) == blocks{block(4, 1), block(4, 2), block(4, 3)});
}

TEST_CASE("gate_lookahead drops candidates once their layer has passed", "[prefetch]") {
  prefetch::gate_lookahead policy{{}};
  hint(policy, 4, {1}, {1.0F});
  hint(policy, 5, {2}, {1.0F});
  policy.observe({make_block_id(block_kind::dense, layer_id{5}, 0),
                  true});  // the layer's experts are still to come
  use(policy, 4, {9});
  CHECK(all_of(policy) == blocks{block(5, 2)});
  hint(policy, 5, {3}, {1.0F});
  use(policy, 6, {9});
  CHECK(all_of(policy).empty());
}

TEST_CASE("gate_lookahead keeps hints for the next token across the end of this one",
          "[prefetch]") {
  prefetch::gate_lookahead policy{{}};
  use(policy, 9, {1});
  hint(policy, 1, {4}, {1.0F});
  CHECK(all_of(policy) == blocks{block(1, 4)});
}

TEST_CASE("gate_lookahead suggests again what is hinted again", "[prefetch]") {
  prefetch::gate_lookahead policy{{}};
  hint(policy, 4, {1, 2}, {2.0F, 1.0F});
  CHECK(all_of(policy).size() == 2);
  hint(policy, 4, {2}, {3.0F});
  CHECK(all_of(policy) == blocks{block(4, 2)});
}

TEST_CASE("gate_lookahead hands out the rest when the first answer was too small", "[prefetch]") {
  prefetch::gate_lookahead policy{{}};
  hint(policy, 4, {1, 2, 3}, {3.0F, 2.0F, 1.0F});
  std::array<block_id, 2> out{};
  CHECK(policy.suggest(out) == 2);
  CHECK(all_of(policy) == blocks{block(4, 3)});
}

TEST_CASE("gate_lookahead ranks scores that are no numbers last and takes missing ones as given",
          "[prefetch]") {
  prefetch::gate_lookahead policy{{}};
  hint(policy, 4, {1, 2, 3}, {std::nanf(""), 1.0F});
  CHECK(all_of(policy) == blocks{block(4, 2), block(4, 1), block(4, 3)});
}

TEST_CASE("gate_lookahead keeps a bounded number of layers", "[prefetch]") {
  prefetch::gate_lookahead policy{{}};
  for (std::uint32_t layer = 1; layer <= 1000; ++layer) { hint(policy, layer, {1}, {1.0F}); }
  CHECK(all_of(policy).size() == 64);
}

TEST_CASE("trace_markov learns what follows", "[prefetch]") {
  prefetch::trace_markov policy{{}};
  for (int token = 0; token < 4; ++token) {
    use(policy, 1, {10, 11});
    use(policy, 2, {20, 21});
    use(policy, 1, {30, 31});
    use(policy, 2, {40, 41});
  }
  use(policy, 1, {10, 11});
  auto const first = all_of(policy);
  REQUIRE(first.size() >= 2);
  CHECK((first[0] == block(2, 20) || first[0] == block(2, 21)));
  CHECK((first[1] == block(2, 20) || first[1] == block(2, 21)));
  use(policy, 2, {20, 21});
  use(policy, 1, {30, 31});
  auto const second = all_of(policy);
  REQUIRE(second.size() >= 2);
  CHECK((second[0] == block(2, 40) || second[0] == block(2, 41)));
}

TEST_CASE("trace_markov follows the last layer with the first of the next token", "[prefetch]") {
  prefetch::trace_markov policy{{}};
  for (int token = 0; token < 4; ++token) {
    use(policy, 1, {5});
    use(policy, 2, {6});
  }
  CHECK(all_of(policy) == blocks{block(1, 5)});
}

TEST_CASE("trace_markov suggests nothing below the chance it was told", "[prefetch]") {
  prefetch::trace_markov policy{{.least_chance = 1.0F}};
  for (std::uint32_t token = 0; token < 64; ++token) {
    use(policy, 1, {1});
    use(policy, 2, {token % 8});  // follows one time in eight
  }
  use(policy, 1, {1});
  CHECK(all_of(policy).empty());
}

TEST_CASE("trace_markov suggests at most its width", "[prefetch]") {
  prefetch::trace_markov policy{{.width = 3, .least_chance = 0.0F}};
  for (int token = 0; token < 4; ++token) {
    use(policy, 1, {1, 2, 3, 4, 5, 6});
    use(policy, 2, {1, 2, 3, 4, 5, 6});
  }
  use(policy, 1, {1, 2, 3, 4, 5, 6});
  CHECK(all_of(policy).size() == 3);
}

TEST_CASE("trace_markov learns nothing from batches", "[prefetch]") {
  prefetch::trace_markov policy{{.most_experts = 4}};
  for (int batch = 0; batch < 4; ++batch) {
    use(policy, 1, {1, 2, 3, 4, 5});
    use(policy, 2, {1, 2, 3, 4, 5});
  }
  use(policy, 1, {1});
  CHECK(all_of(policy).empty());
}

TEST_CASE("trace_markov learns from no more experts than it was told", "[prefetch]") {
  prefetch::trace_markov policy{{.sources = 1}};
  for (int token = 0; token < 4; ++token) {
    use(policy, 1, {1});
    use(policy, 2, {2});
    use(policy, 3, {static_cast<std::uint32_t>(token)});
  }
  use(policy, 1, {1});
  CHECK(all_of(policy) == blocks{block(2, 2)});
}

TEST_CASE("trace_markov ignores blocks that are no experts", "[prefetch]") {
  prefetch::trace_markov policy{{}};
  for (int token = 0; token < 4; ++token) {
    for (std::uint32_t layer = 1; layer <= 2; ++layer) {
      policy.observe({make_block_id(block_kind::dense, layer_id{layer}, 0), false});
    }
  }
  CHECK(all_of(policy).empty());
}

TEST_CASE("prefetch options out of range are refused with the range", "[prefetch]") {
  CHECK_THROWS_WITH((prefetch::gate_lookahead{{.width = 0}}), ContainsSubstring("width is 0"));
  CHECK_THROWS_AS((prefetch::gate_lookahead{{.width = 1, .slack = SIZE_MAX}}), contract_error);
  CHECK_THROWS_WITH((prefetch::trace_markov{{.width = 0}}), ContainsSubstring("width is 0"));
  CHECK_THROWS_WITH((prefetch::trace_markov{{.least_chance = std::nanf("")}}),
                    ContainsSubstring("least_chance"));
  CHECK_THROWS_AS((prefetch::trace_markov{{.successors = 0}}), contract_error);
  CHECK_THROWS_AS((prefetch::trace_markov{{.half_life_uses = 0}}), contract_error);
  CHECK_THROWS_AS((prefetch::trace_markov{{.sources = SIZE_MAX}}), contract_error);
  CHECK_THROWS_AS((prefetch::trace_markov{{.most_experts = 0}}), contract_error);
}

TEST_CASE("prefetch policies are chosen by name", "[prefetch]") {
  for (std::string_view const name : prefetch::any::names) {
    CHECK_NOTHROW(prefetch::any{{std::string{name}}});
  }
  CHECK_THROWS_WITH(
      prefetch::any{{"psychic"}},
      ContainsSubstring("`psychic`") && ContainsSubstring("none, gate_lookahead or trace_markov"));
  prefetch::any policy{{"gate_lookahead"}};
  std::array const experts{expert_id{3}};
  std::array const scores{1.0F};
  policy.hint({layer_id{2}, experts, scores});
  CHECK(all_of(policy) == blocks{block(2, 3)});
}

}  // namespace terrace::test
