// SPDX-License-Identifier: Apache-2.0
// Runs terrace-replay as a user does.
#include "support/scratch_folder.hpp"

#include <terrace/observe/routing_trace.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <nlohmann/json.hpp>
#include <sys/wait.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

namespace terrace::test {
namespace {

using Catch::Matchers::ContainsSubstring;
using nlohmann::json;

struct run_result {
  int status = -1;
  std::string out;
  std::string err;
};

run_result run(scratch_folder const& folder, std::string const& arguments) {
  auto const out = folder.file("out");
  auto const err = folder.file("err");
  std::string const command =
      std::string{"'" TERRACE_REPLAY "' "} + arguments + " >'" + out + "' 2>'" + err + "'";
  int const status = std::system(command.c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, bytes_of(out), bytes_of(err)};
}

/// 8 blocks a token of 2 x 20, two layers with top-4.
std::string trace_in(scratch_folder const& folder) {
  observe::routing_trace trace{.layers = 2,
                               .top_k = 4,
                               .experts = 20,
                               .first_layer = 1,
                               .tokens = std::vector<std::uint16_t>(200),
                               .chosen = {}};
  for (std::uint32_t set = 0; set < 400; ++set) {
    for (std::uint32_t k = 0; k < 4; ++k) {
      trace.chosen.push_back(static_cast<std::uint16_t>((set * 7 + k * 3) % 20));
    }
  }
  auto const path = folder.file("trace.bin");
  observe::write_routing_trace(path, trace);
  return path;
}

}  // namespace

TEST_CASE("the table names every policy beside the oracle", "[replay]") {
  scratch_folder const folder;
  auto const result = run(folder, trace_in(folder));
  CHECK(result.status == 0);
  CHECK(result.err.empty());
  for (char const* const word : {"lfu_decay",
                                 "lru",
                                 "clock",
                                 "s3_fifo",
                                 "pinned",
                                 "oracle",
                                 "trace_markov",
                                 "hit rate",
                                 "of oracle",
                                 "200 tokens"}) {
    CHECK_THAT(result.out, ContainsSubstring(word));
  }
  CHECK_THAT(result.out, ContainsSubstring("skipped: prefetch gate_lookahead"));
  CHECK_THAT(result.out,
             ContainsSubstring("skipped: capacity 5%"));  // 2 of 40 slots are less than a set of 4
}

TEST_CASE("the JSON table is one object with consistent counts", "[replay]") {
  scratch_folder const folder;
  auto const path = trace_in(folder);
  auto const result = run(
      folder, path + " --capacity 25%,12 --evict lru,oracle --prefetch none,trace_markov --json -");
  REQUIRE(result.status == 0);
  auto const table = json::parse(result.out);
  CHECK(table.at("tokens") == 200);
  REQUIRE(table.at("rows").size() == 6);  // two capacities of lru twice and the oracle once
  for (auto const& row : table.at("rows")) {
    CHECK(row.at("hits").get<std::uint64_t>() + row.at("misses").get<std::uint64_t>() == 1600);
    CHECK(row.at("prefetched") == row.at("prefetch_used").get<std::uint64_t>() +
                                      row.at("prefetch_wasted").get<std::uint64_t>());
    if (row.at("evict") == "oracle") { CHECK(row.at("oracle_ratio") == 1.0); }
  }
  CHECK(table.at("rows")[0].at("capacity_blocks") == 10);
  CHECK(table.at("rows")[5].at("capacity_blocks") == 12);

  auto const file = folder.file("table.json");
  REQUIRE(run(folder, path + " --json '" + file + "'").status == 0);
  CHECK(json::parse(bytes_of(file)).at("rows").size() == 4 * 11);
}

TEST_CASE("a capacity below one set is refused with the smallest that works", "[replay]") {
  scratch_folder const folder;
  auto const path = trace_in(folder);
  auto const result = run(folder, path + " --capacity 3");
  CHECK(result.status == 1);
  CHECK_THAT(result.err, ContainsSubstring("smallest value that works is 4"));
  CHECK(run(folder, path + " --capacity 5%").status == 1);
  CHECK(run(folder, path + " --capacity 4").status == 0);
}

TEST_CASE("what the command line cannot mean exits with 2 and a sentence", "[replay]") {
  scratch_folder const folder;
  auto const path = trace_in(folder);
  auto const refuse = [&](std::string const& arguments, char const* why) {
    auto const result = run(folder, arguments);
    INFO(arguments << ": " << result.err);
    CHECK(result.status == 2);
    CHECK_THAT(result.err, ContainsSubstring(why));
    CHECK(result.out.empty());
  };
  refuse("", "TRACE");
  refuse(path + " --evict mru", "`mru`");
  refuse(path + " --prefetch gate_lookahead", "hints");
  refuse(path + " --prefetch psychic", "`psychic`");
  refuse(path + " --capacity 101%", "`101%`");
  refuse(path + " --capacity -1", "-1");
  refuse(path + " --capacity ten", "`ten`");
  refuse(path + " --capacity nan%", "`nan%`");
  refuse(path + " --frobnicate", "--frobnicate");
}

TEST_CASE("broken traces and unwritable results exit with 1 and a sentence", "[replay]") {
  scratch_folder const folder;
  auto const path = trace_in(folder);
  auto const refuse = [&](std::string const& arguments, char const* why) {
    auto const result = run(folder, arguments);
    INFO(arguments << ": " << result.err);
    CHECK(result.status == 1);
    CHECK_THAT(result.err, ContainsSubstring(why));
  };
  refuse(folder.file("absent"), "absent");
  refuse(folder.write("cut", bytes_of(path).substr(0, 100)), "100 bytes");
  refuse(path + " --json " + folder.file("no/table.json"), "no/table.json");
}

TEST_CASE("help is printed and exits with 0", "[replay]") {
  scratch_folder const folder;
  auto const result = run(folder, "--help");
  CHECK(result.status == 0);
  CHECK_THAT(result.out, ContainsSubstring("--capacity") && ContainsSubstring("--json"));
}

}  // namespace terrace::test
