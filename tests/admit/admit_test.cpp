// SPDX-License-Identifier: Apache-2.0
#include "concepts/admission_policy_conformance.hpp"

#include <terrace/admit/always.hpp>
#include <terrace/admit/any.hpp>
#include <terrace/admit/second_touch.hpp>
#include <terrace/core/error.hpp>
#include <terrace/core/ids.hpp>

#include <catch2/catch_template_test_macros.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <cstdint>
#include <string>
#include <string_view>

namespace terrace::test {
namespace {

using Catch::Matchers::ContainsSubstring;

block_id block(std::uint32_t number) { return expert_block(layer_id{1}, expert_id{number}); }

}  // namespace

TEMPLATE_TEST_CASE("an admission policy keeps its promises",
                   "[admit]",
                   admit::always,
                   admit::second_touch,
                   admit::any) {
  check_admission_policy(TestType{typename TestType::options{}});
}

TEST_CASE("always admits at once", "[admit]") { CHECK(admit::always{}.admit(block(1))); }

TEST_CASE("second_touch admits at the second arrival and starts anew", "[admit]") {
  admit::second_touch policy{{}};
  for (int round = 0; round < 3; ++round) {
    CHECK_FALSE(policy.admit(block(1)));
    CHECK(policy.admit(block(1)));
  }
}

TEST_CASE("second_touch remembers as many first arrivals as it was told", "[admit]") {
  admit::second_touch policy{{.remembered = 4}};
  for (std::uint32_t number = 1; number <= 4; ++number) {
    CHECK_FALSE(policy.admit(block(number)));
  }
  CHECK(policy.admit(block(1)));        // the oldest is still known
  CHECK_FALSE(policy.admit(block(5)));  // takes the place that 1 gave up
  CHECK_FALSE(policy.admit(block(6)));  // pushes out 2
  CHECK_FALSE(policy.admit(block(2)));  // forgotten; pushes out 3
  CHECK(policy.admit(block(4)));
}

TEST_CASE("second_touch refuses to remember nothing or without bound", "[admit]") {
  CHECK_THROWS_WITH(admit::second_touch{{0}}, ContainsSubstring("remembered is 0"));
  CHECK_THROWS_AS(admit::second_touch{{SIZE_MAX}}, contract_error);
}

TEST_CASE("admission policies are chosen by name", "[admit]") {
  admit::any lenient{{"always"}};
  CHECK(lenient.admit(block(1)));
  admit::any strict{{"second_touch"}};
  CHECK_FALSE(strict.admit(block(1)));
  CHECK(strict.admit(block(1)));
  CHECK_THROWS_WITH(admit::any{{"never"}},
                    ContainsSubstring("`never`") && ContainsSubstring("always or second_touch"));
}

}  // namespace terrace::test
