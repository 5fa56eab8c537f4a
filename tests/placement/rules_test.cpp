// SPDX-License-Identifier: Apache-2.0
#include <terrace/core/block.hpp>
#include <terrace/core/error.hpp>
#include <terrace/placement/rules.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <array>
#include <string>
#include <string_view>
#include <vector>

namespace terrace::test {
namespace {

using Catch::Matchers::ContainsSubstring;
using placement::placed;
using placement::rules;

constexpr std::array<std::string_view, 2> tiers{"dram", "pmem"};

rules parse(std::vector<std::string> const& texts) { return rules::parse(texts, tiers); }

block_info named(std::vector<std::string> names) {
  block_info block;
  block.names = std::move(names);
  return block;
}

block_info expert(int layer) {
  std::string const prefix = "blk." + std::to_string(layer) + ".ffn_";
  return named(
      {prefix + "gate_exps.weight", prefix + "up_exps.weight", prefix + "down_exps.weight"});
}

}  // namespace

TEST_CASE("the first matching rule places a block", "[placement]") {
  auto placing = parse({R"(blk\.[01]\.=dram:pin)", "ffn_.*_exps=pmem", ".*=dram"});
  CHECK(placing.place(expert(1)) == placed{"dram", true});
  CHECK(placing.place(expert(7)) == placed{"pmem", false});
  CHECK(placing.place(named({"output.weight"})) == placed{"dram", false});
}

TEST_CASE("a block that no rule matches is left alone", "[placement]") {
  auto placing = parse({"attn=dram"});
  CHECK(placing.place(expert(1)) == std::nullopt);
  CHECK(rules{}.place(expert(1)) == std::nullopt);
  CHECK(rules{}.empty());
}

TEST_CASE("an expert matches if any of its matrices does", "[placement]") {
  auto placing = parse({"down_exps=pmem"});
  CHECK(placing.place(expert(1)) == placed{"pmem", false});
}

TEST_CASE("an earlier rule wins even if it matches a later matrix", "[placement]") {
  auto placing = parse({"down_exps=pmem", "gate_exps=dram"});
  CHECK(placing.place(expert(1)) == placed{"pmem", false});
}

TEST_CASE("a rule is searched for, not matched whole, and can be anchored", "[placement]") {
  auto placing = parse({"^ffn=dram", "exps=pmem"});
  CHECK(placing.place(expert(1)) == placed{"pmem", false});
}

TEST_CASE("a rule is split at its last equals sign", "[placement]") {
  auto placing = parse({"a=b=dram"});
  CHECK(placing.place(named({"xa=by"})) == placed{"dram", false});
}

TEST_CASE("rules that placed nothing are named as they were given", "[placement]") {
  auto placing = parse({"ffn=dram", "down_exps=pmem", "nothing=dram:pin"});
  CHECK(placing.unused().size() == 3);
  static_cast<void>(placing.place(expert(1)));
  // The second never gets a block: the first takes them all.
  CHECK(placing.unused() == std::vector<std::string>{"down_exps=pmem", "nothing=dram:pin"});
}

TEST_CASE("malformed rules are refused with the rule in the sentence", "[placement]") {
  CHECK_THROWS_WITH(parse({"dram"}),
                    ContainsSubstring("`dram`") && ContainsSubstring("REGEX=TIER"));
  CHECK_THROWS_AS(parse({""}), contract_error);
  CHECK_THROWS_AS(parse({"=dram"}), contract_error);
  CHECK_THROWS_AS(parse({"a="}), contract_error);
  CHECK_THROWS_AS(parse({"a=:pin"}), contract_error);
  CHECK_THROWS_WITH(parse({"a=dram:pni"}), ContainsSubstring(":pni") && ContainsSubstring(":pin"));
  CHECK_THROWS_WITH(parse({"a=vram"}),
                    ContainsSubstring("vram") && ContainsSubstring("dram or pmem"));
}

TEST_CASE("without a list of tiers any name is taken", "[placement]") {
  std::vector<std::string> const texts{"x=anywhere"};
  auto placing = rules::parse(texts);
  CHECK(placing.place(named({"x"})) == placed{"anywhere", false});
}

TEST_CASE("broken regular expressions are refused", "[placement]") {
  for (std::string const pattern : {"(", ")", "[z-a]", "a{2,1}", "*", "\\", "(?<name>a)"}) {
    INFO(pattern);
    CHECK_THROWS_WITH(parse({pattern + "=dram"}), ContainsSubstring("placement rule"));
  }
}

TEST_CASE("regular expressions too large to match safely are refused", "[placement]") {
  CHECK_THROWS_WITH(parse({std::string(1025, 'a') + "=dram"}), ContainsSubstring("1025 bytes"));
  CHECK_THROWS_WITH(parse({"(((a?){10}){10}){10}=dram"}), ContainsSubstring("repetitions"));
  CHECK_THROWS_AS(parse({"a{99999999999999999999}=dram"}), contract_error);
  CHECK_THROWS_AS(parse({"(" + std::string(600, '(') + "=dram"}), contract_error);
  CHECK_NOTHROW(parse({R"(blk\.(1{1,2}|\{999999\})\.=dram)"}));
}

TEST_CASE("a pattern that backtracks without end is matched in bounded time", "[placement]") {
  auto placing = parse({"(a*)*b=dram", "(a|aa)+$=pmem"});
  CHECK(placing.place(named({std::string(64, 'a')})) == placed{"pmem", false});
}

TEST_CASE("tensor names too long for a rule are refused", "[placement]") {
  auto placing = parse({"a=dram"});
  CHECK_THROWS_AS(placing.place(named({std::string(257, 'a')})), format_error);
  CHECK(placing.place(named({std::string(256, 'a')})).has_value());
}

}  // namespace terrace::test
