// SPDX-License-Identifier: Apache-2.0
#include <terrace/observe/counters.hpp>
#include <terrace/observe/json_text.hpp>
#include <terrace/observe/report.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <cmath>
#include <limits>
#include <sstream>
#include <string>
#include <vector>

namespace terrace::test {
namespace {

using Catch::Matchers::ContainsSubstring;

std::vector<std::string> lines_of(std::string const& text) {
  std::istringstream stream{text};
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) { lines.push_back(line); }
  return lines;
}

std::vector<observe::tier_counters> two_tiers() {
  observe::tier_counters dram;
  dram.name = "dram";
  dram.mode = "huge pages";
  dram.capacity_bytes = 64U << 20U;
  dram.peak_bytes = 60U << 20U;
  dram.hits = 750;
  dram.misses = 250;
  dram.bytes_in = 3U << 30U;
  dram.evictions = 240;
  dram.prefetched = 12;
  dram.prefetch_used = 9;
  dram.stall_ns = 1'234'000'000;
  observe::tier_counters home;
  home.name = "nvme";
  home.hits = 250;
  home.bytes_out = 3U << 30U;
  home.mode = "io_uring, direct";
  return {dram, home};
}

}  // namespace

TEST_CASE("the hit rate of a tier nobody asked is zero", "[observe]") {
  observe::tier_counters tier;
  CHECK(tier.hit_rate() == 0.0);
  tier.hits = 3;
  tier.misses = 1;
  CHECK(tier.hit_rate() == 0.75);
  tier.stall_ns = 1'500'000'000;
  CHECK(std::abs(tier.stall_s() - 1.5) < 1e-12);
}

TEST_CASE("the closing table has one aligned line per tier, with units", "[observe]") {
  auto const lines = lines_of(observe::report(two_tiers()));
  REQUIRE(lines.size() == 3);
  CHECK_THAT(lines[0], ContainsSubstring("hit rate"));
  CHECK_THAT(lines[1],
             ContainsSubstring("64.00 MiB") && ContainsSubstring("75.0 %") &&
                 ContainsSubstring("3.00 GiB"));
  CHECK_THAT(lines[1], ContainsSubstring("12 (9 used)") && ContainsSubstring("1.234 s"));
  // Columns end under their headings; the mode starts under its own.
  auto const end_of = [&](std::string const& line, std::string const& cell) {
    return line.find(cell) + cell.size();
  };
  CHECK(end_of(lines[0], "misses") == end_of(lines[1], " 250"));
  CHECK(end_of(lines[0], "stall") == end_of(lines[1], "1.234 s"));
  CHECK(lines[0].find("mode") == lines[1].find("huge pages"));
  CHECK(lines[0].find("mode") == lines[2].find("io_uring"));
}

TEST_CASE("a home has no capacity in the closing table", "[observe]") {
  auto const lines = lines_of(observe::report(two_tiers()));
  REQUIRE(lines.size() == 3);
  CHECK_THAT(lines[2], ContainsSubstring(" - "));
  CHECK(lines_of(observe::report({})).size() == 1);
}

TEST_CASE("JSON strings are escaped and always UTF-8", "[observe]") {
  CHECK(observe::json_quoted("a\"b\\c\n\x01") == R"("a\"b\\c\u000a\u0001")");
  CHECK(observe::json_quoted("\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80") ==
        "\"\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80\"");
  CHECK(observe::json_quoted("\xC0\x80") == R"("\ufffd\ufffd")");            // overlong
  CHECK(observe::json_quoted("\xED\xA0\x80") == R"("\ufffd\ufffd\ufffd")");  // surrogate
  CHECK(observe::json_quoted("\xF4\x90\x80\x80") == R"("\ufffd\ufffd\ufffd\ufffd")");
  CHECK(observe::json_quoted("x\xE2\x82") == R"("x\ufffd\ufffd")");  // cut short
  CHECK(observe::json_quoted("\xFF") == R"("\ufffd")");
}

TEST_CASE("JSON numbers come back exactly, and what is no number is null", "[observe]") {
  for (double const value : {0.0, 0.1, 1.0 / 3, 1e300, -2.5e-12, 123456789.125}) {
    CHECK(std::stod(observe::json_number(value)) == value);
  }
  CHECK(observe::json_number(0.25) == "0.25");
  CHECK(observe::json_number(std::nan("")) == "null");
  CHECK(observe::json_number(std::numeric_limits<double>::infinity()) == "null");
}

}  // namespace terrace::test
