// SPDX-License-Identifier: Apache-2.0
#include "likelihood.hpp"

#include <terrace/core/error.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <vector>

using Catch::Matchers::ContainsSubstring;
using terrace::runner::cut_windows;
using terrace::runner::parse_windows;
using terrace::runner::token_window;

TEST_CASE("windows are read one a line, whatever ends the lines", "[runner]") {
  std::vector<token_window> const expected{{1, 2, 3}, {4, 5}};
  CHECK(parse_windows("1,2,3\n4,5\n", "f") == expected);
  CHECK(parse_windows("1,2,3\r\n\r\n 4, 5", "f") == expected);
}

TEST_CASE("a line that is no window is refused by its number", "[runner]") {
  CHECK_THROWS_WITH(parse_windows("1,2\n3,x\n", "ids.txt"), ContainsSubstring("ids.txt: line 2"));
  CHECK_THROWS_WITH(parse_windows("\n7\n", "ids.txt"), ContainsSubstring("ids.txt: line 2"));
  CHECK_THROWS_AS(parse_windows("1,-2", "f"), terrace::format_error);
  CHECK_THROWS_AS(parse_windows("", "f"), terrace::format_error);
  CHECK_THROWS_AS(parse_windows("\n\n", "f"), terrace::format_error);
}

TEST_CASE("a text is cut into windows led by BOS, and a rest without a likelihood is left out",
          "[runner]") {
  std::vector<std::int32_t> const ids{1, 2, 3, 4, 5};
  CHECK(cut_windows(ids, 9, 3) == std::vector<token_window>{{9, 1, 2}, {9, 3, 4}, {9, 5}});
  CHECK(cut_windows(ids, -1, 2) == std::vector<token_window>{{1, 2}, {3, 4}});
  CHECK(cut_windows(ids, -1, 100) == std::vector<token_window>{{1, 2, 3, 4, 5}});
  CHECK_THROWS_AS(cut_windows({}, 9, 3), terrace::contract_error);
  CHECK_THROWS_AS(cut_windows(std::vector<std::int32_t>{1}, -1, 3), terrace::contract_error);
}
