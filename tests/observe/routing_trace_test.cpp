// SPDX-License-Identifier: Apache-2.0
#include "support/scratch_folder.hpp"

#include <terrace/core/error.hpp>
#include <terrace/observe/routing_trace.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace terrace::test {
namespace {

using Catch::Matchers::ContainsSubstring;
using observe::routing_trace;

routing_trace small_trace() {
  return {.layers = 2,
          .top_k = 2,
          .experts = 300,
          .first_layer = 1,
          .tokens = {7, 65'535, 1},
          .chosen = {0, 299, 1, 2, 3, 4, 5, 6, 7, 8, 299, 0}};
}

/// The bytes of a trace file whose header fields are `fields` and whose body has `body_bytes`
/// zeros.
std::string file_bytes(std::vector<std::uint32_t> const& fields, std::size_t body_bytes) {
  std::string bytes{"RTRACE01"};
  for (std::uint32_t const field : fields) {
    for (int shift = 0; shift < 32; shift += 8) {
      bytes += static_cast<char>((field >> shift) & 0xFFU);
    }
  }
  return bytes + std::string(body_bytes, '\0');
}

}  // namespace

TEST_CASE("a routing trace comes back as it was written", "[observe]") {
  scratch_folder const folder;
  auto const path = folder.file("trace.bin");
  observe::write_routing_trace(path, small_trace());
  CHECK(std::filesystem::file_size(path) == 32 + 2 * 3 + 2 * 12);
  auto const read = observe::read_routing_trace(path);
  CHECK(read == small_trace());
  CHECK(read.at(2, 1)[0] == 299);
  CHECK(read.at(0, 1)[1] == 2);
}

TEST_CASE("a routing trace has the documented bytes", "[observe]") {
  scratch_folder const folder;
  auto const path = folder.file("trace.bin");
  observe::write_routing_trace(path,
                               {.layers = 1,
                                .top_k = 1,
                                .experts = 513,
                                .first_layer = 3,
                                .tokens = {258},
                                .chosen = {512}});
  CHECK(bytes_of(path) == file_bytes({1, 1, 1, 513, 3, 0}, 0) + std::string{"\x02\x01\x00\x02", 4});
}

TEST_CASE("recorded routing traces are read whole", "[observe]") {
  std::string const folder{TERRACE_GOLDEN_DIR};
  if (folder.empty()) { SKIP("TERRACE_GOLDEN_DIR is not set: kimi-k2-tiny/routing-trace.bin"); }
  auto const trace = observe::read_routing_trace(folder + "/kimi-k2-tiny/routing-trace.bin");
  CHECK(trace.tokens.size() == 6000);
  CHECK(trace.layers == 5);
  CHECK(trace.top_k == 6);
  CHECK(trace.experts == 64);
  CHECK(trace.first_layer == 1);
}

TEST_CASE("files that are no routing traces are refused by name", "[observe]") {
  scratch_folder const folder;
  CHECK_THROWS_AS(observe::read_routing_trace(folder.file("absent.bin")), io_error);
  CHECK_THROWS_AS(observe::read_routing_trace(folder.file("")), io_error);
  CHECK_THROWS_WITH(observe::read_routing_trace(folder.write("empty", "")),
                    ContainsSubstring("not a routing trace") && ContainsSubstring("0 bytes"));
  CHECK_THROWS_AS(observe::read_routing_trace(folder.write("magic", "RTRACE01")), format_error);
  CHECK_THROWS_WITH(
      observe::read_routing_trace(folder.write("other", "GGUF" + std::string(40, '\0'))),
      ContainsSubstring("RTRACE01"));
}

TEST_CASE("routing traces with impossible headers are refused", "[observe]") {
  scratch_folder const folder;
  auto const refuse = [&](std::vector<std::uint32_t> const& fields,
                          std::size_t body,
                          char const* why) {
    INFO(why);
    CHECK_THROWS_WITH(observe::read_routing_trace(folder.write("trace", file_bytes(fields, body))),
                      ContainsSubstring(why));
    CHECK_THROWS_AS(observe::read_routing_trace(folder.file("trace")), format_error);
  };
  refuse({0, 1, 1, 4, 0, 0}, 0, "empty dimension");
  refuse({1, 0, 1, 4, 0, 0}, 2, "empty dimension");
  refuse({1, 1, 0, 4, 0, 0}, 2, "empty dimension");
  refuse({1, 1, 1, 0, 0, 0}, 4, "empty dimension");
  refuse({1, 1, 5, 4, 0, 0}, 12, "top-5 of only 4");
  refuse({1, 1, 1, 65'537, 0, 0}, 4, "65537 experts");
  refuse({1, 1, 1, 4, 0, 9}, 4, "reserved");
  refuse({1, 1, 1, 4, 0xFF'FFFF, 0}, 4, "beyond layer");
  refuse({1, 0xFFFF'FFFF, 1, 4, 0xFFFF'FFFF, 0}, 4, "beyond layer");
}

TEST_CASE("routing traces shorter or longer than their header says are refused", "[observe]") {
  scratch_folder const folder;
  for (std::size_t const body : {0U, 3U, 5U, 8U}) {
    auto const path = folder.write("trace", file_bytes({1, 1, 1, 4, 0, 0}, body));
    CHECK_THROWS_WITH(observe::read_routing_trace(path),
                      ContainsSubstring(std::to_string(32 + body) + " bytes"));
  }
  // Products that would wrap 64 bits.
  auto const path =
      folder.write("trace", file_bytes({0xFFFF'FFFF, 0xFF'0000, 65'536, 65'536, 0, 0}, 4));
  CHECK_THROWS_AS(observe::read_routing_trace(path), format_error);
}

TEST_CASE("routing traces with impossible experts are refused with the place", "[observe]") {
  scratch_folder const folder;
  auto bytes = file_bytes({2, 1, 2, 4, 3, 0}, 2 * 2 + 2 * 4);
  bytes[36] = 1;  // token 0: experts 1, 0
  bytes[40] = 4;  // token 1: experts 4, 0
  CHECK_THROWS_WITH(observe::read_routing_trace(folder.write("trace", bytes)),
                    ContainsSubstring("expert 4 of 4 at token 1, layer 3"));
  bytes[40] = 0;
  CHECK_THROWS_WITH(observe::read_routing_trace(folder.write("trace", bytes)),
                    ContainsSubstring("expert 0 twice at token 1, layer 3"));
  bytes[40] = 2;
  CHECK_NOTHROW(observe::read_routing_trace(folder.write("trace", bytes)));
}

TEST_CASE("writing a routing trace checks it and the disk", "[observe]") {
  scratch_folder const folder;
  auto const path = folder.file("trace.bin");
  auto trace = small_trace();
  trace.chosen.pop_back();
  CHECK_THROWS_AS(observe::write_routing_trace(path, trace), contract_error);
  trace = small_trace();
  trace.chosen[3] = 300;
  CHECK_THROWS_AS(observe::write_routing_trace(path, trace), format_error);
  CHECK_FALSE(std::filesystem::exists(path));
  CHECK_THROWS_AS(observe::write_routing_trace(folder.file("no/such/folder"), small_trace()),
                  io_error);
  if (std::filesystem::exists("/dev/full")) {
    CHECK_THROWS_AS(observe::write_routing_trace("/dev/full", small_trace()), io_error);
  }
}

}  // namespace terrace::test
