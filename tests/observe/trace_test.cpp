// SPDX-License-Identifier: Apache-2.0
#include "support/scratch_folder.hpp"

#include <terrace/core/error.hpp>
#include <terrace/observe/trace.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <nlohmann/json.hpp>

#include <array>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace terrace::test {
namespace {

using Catch::Matchers::ContainsSubstring;
using nlohmann::json;

}  // namespace

TEST_CASE("a trace holds complete events in microseconds with their arguments", "[observe]") {
  scratch_folder const folder;
  auto const path = folder.file("trace.json");
  {
    observe::trace_writer trace{path, "a \"process\""};
    trace.name_track(3, "copies");
    std::array<observe::trace_argument, 3> const arguments{{{"bytes", std::int64_t{4096}},
                                                            {"share", std::nan("")},
                                                            {"tier", std::string_view{"dr\xFF"}}}};
    trace.complete({.name = "read",
                    .category = "io",
                    .track = 3,
                    .start_ns = 1'234'567,
                    .duration_ns = 89,
                    .arguments = arguments});
    trace.close();
  }
  auto const events = json::parse(bytes_of(path)).at("traceEvents");
  REQUIRE(events.size() == 3);
  CHECK(events[0].at("args").at("name") == "a \"process\"");
  CHECK(events[1].at("name") == "thread_name");
  CHECK(events[1].at("args").at("name") == "copies");
  CHECK(events[2].at("ph") == "X");
  CHECK(events[2].at("tid") == 3);
  CHECK(events[2].at("ts") == 1234.567);
  CHECK(events[2].at("dur") == 0.089);
  CHECK(events[2].at("args").at("bytes") == 4096);
  CHECK(events[2].at("args").at("share").is_null());
  CHECK(events[2].at("args").at("tier") == "dr\xEF\xBF\xBD");
}

TEST_CASE("a trace is valid JSON at any moment, whether or not it was closed", "[observe]") {
  scratch_folder const folder;
  auto const path = folder.file("trace.json");
  observe::trace_writer trace{path};
  CHECK(json::accept(bytes_of(path)));
  std::size_t last = 0;
  for (int i = 0; i < 3000; ++i) {
    trace.complete(
        {.name = "event", .category = "test", .start_ns = static_cast<std::uint64_t>(i)});
    if (i % 500 == 0) { CHECK(json::accept(bytes_of(path))); }
  }
  last = json::parse(bytes_of(path)).at("traceEvents").size();
  CHECK(last > 500);   // batches reach the file on the way
  CHECK(last < 3001);  // and the rest waits in memory
  trace.close();
  CHECK(json::parse(bytes_of(path)).at("traceEvents").size() == 3001);
  trace.complete({.name = "late", .category = "test"});
  trace.close();
  CHECK(json::parse(bytes_of(path)).at("traceEvents").size() == 3001);
}

TEST_CASE("several threads may write one trace", "[observe]") {
  scratch_folder const folder;
  auto const path = folder.file("trace.json");
  {
    observe::trace_writer trace{path};
    std::vector<std::thread> writers;
    for (std::uint32_t track = 0; track < 4; ++track) {
      writers.emplace_back([&trace, track] {
        for (int i = 0; i < 1000; ++i) {
          trace.complete(
              {.name = "event", .category = "test", .track = track, .start_ns = trace.now_ns()});
        }
      });
    }
    for (auto& writer : writers) { writer.join(); }
  }
  CHECK(json::parse(bytes_of(path)).at("traceEvents").size() == 4001);
}

TEST_CASE("a trace that cannot be opened or written is an error naming the file", "[observe]") {
  scratch_folder const folder;
  CHECK_THROWS_WITH(observe::trace_writer{folder.file("no/trace.json")},
                    ContainsSubstring("no/trace.json"));
  if (std::filesystem::exists("/dev/full")) {
    CHECK_THROWS_AS(observe::trace_writer{"/dev/full"}, io_error);
  }
}

}  // namespace terrace::test
