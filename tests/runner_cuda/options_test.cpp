// SPDX-License-Identifier: Apache-2.0
#include "options.hpp"

#include "presets.hpp"
#include "support/cuda_machine.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <string>
#include <vector>

namespace terrace::runner {
namespace {

using Catch::Matchers::ContainsSubstring;
using runtime::compute_backend;

options parse(std::vector<char const*> arguments) {
  arguments.insert(arguments.begin(), {"terrace-test", "-m", "model.gguf", "-p", "text"});
  return parse_command_line(static_cast<int>(arguments.size()), arguments.data());
}

}  // namespace

TEST_CASE("a chain whose fastest tier only a device reads is computed there", "[runner]") {
  CHECK(parse({"--chain", "vram-nvme"}).backend == compute_backend::cuda);
  CHECK(parse({"--chain", "vram-nvme", "--backend", "cuda"}).backend == compute_backend::cuda);
  CHECK(parse({"--chain", "pinned-nvme"}).backend == compute_backend::cpu);
  CHECK(parse({"--chain", "unified-nvme"}).backend == compute_backend::cpu);
  CHECK(parse({"--chain", "unified-nvme", "--backend", "cuda"}).backend == compute_backend::cuda);
  CHECK(parse({"--chain", "vram-pinned-nvme", "--device", "3"}).device == 3);
  CHECK(parse({"--chain", "vram-pinned-nvme", "--dispatch", "min-batch:8"}).dispatch ==
        "min-batch:8");
}

TEST_CASE("each tier of a chain has a size of its own", "[runner]") {
  auto const read = parse({"--chain", "vram-pinned-nvme", "--vram", "1GiB", "--pinned", "2GiB"});
  CHECK(read.chain.vram->bytes(0) == std::uint64_t{1} << 30U);
  CHECK(read.chain.pinned->bytes(0) == std::uint64_t{2} << 30U);
  CHECK(parse({"--chain", "unified-nvme", "--unified", "25%"}).chain.unified->bytes(400) == 100);
  for (char const* option : {"--vram", "--pinned", "--unified", "--dram"}) {
    CAPTURE(option);
    auto const chain = std::string{option} == "--dram" ? "vram-nvme" : "dram-nvme";
    CHECK_THROWS_WITH(parse({"--chain", chain, option, "1GiB"}),
                      ContainsSubstring(std::string{option} + " has no effect"));
  }
  CHECK_THROWS_WITH(parse({"--chain", "vram-pmem-nvme"}), ContainsSubstring("needs --pmem"));
}

TEST_CASE("a backend that does not read the fastest tier is a usage error", "[runner]") {
  CHECK_THROWS_WITH(parse({"--chain", "vram-nvme", "--backend", "cpu"}),
                    ContainsSubstring("the host does not read vram"));
  CHECK_THROWS_WITH(parse({"--backend", "cuda"}), ContainsSubstring("a device does not read dram"));
  CHECK_THROWS_WITH(parse({"--device", "0"}), ContainsSubstring("--device has no effect"));
  CHECK_THROWS_AS(parse({"--chain", "pinned-nvme", "--dispatch", "auto"}), usage_error);
}

TEST_CASE("a preset is a chain with its backend and its dispatch", "[runner]") {
  test::cuda_machine const machine;
  auto const c = parse({"--preset", "spark-c", "--vram", "1GiB"});
  CHECK(c.chain.name == "unified-pinned-nvme");
  CHECK(c.backend == compute_backend::cuda);
  CHECK(c.dispatch == "min-batch:32");
  CHECK(c.chain.buffered);
  CHECK(c.chain.unified->bytes(0) == std::uint64_t{1} << 30U);
  CHECK(parse({"--preset", "spark-b", "--dispatch", "auto"}).dispatch == "auto");
  CHECK(parse({"--preset", "spark-e"}).backend == compute_backend::cpu);
  CHECK(parse({"--preset", "spark-d"}).chain.evict == "pinned");
  CHECK(parse({"--preset", "3090-b", "--vram", "1GiB"}).chain.vram->bytes(0) == std::uint64_t{1}
                                                                                    << 30U);
}

TEST_CASE("what a preset chooses is not chosen again", "[runner]") {
  test::cuda_machine const machine;
  CHECK_THROWS_AS(parse({"--preset", "spark-b", "--chain", "vram-nvme"}), usage_error);
  CHECK_THROWS_AS(parse({"--preset", "spark-b", "--place", "x=pinned"}), usage_error);
  CHECK_THROWS_AS(parse({"--preset", "spark-b", "--backend", "cuda"}), usage_error);
  CHECK_THROWS_AS(parse({"--preset", "spark-d", "--evict", "lru"}), usage_error);
  CHECK_THROWS_AS(parse({"--preset", "spark-e", "--vram", "1GiB"}), usage_error);
  CHECK_THROWS_AS(parse({"--preset", "spark-e", "--dispatch", "auto"}), usage_error);
  CHECK_THROWS_AS(parse({"--preset", "spark-b", "--vram", "1", "--unified", "1"}), usage_error);
  CHECK_THROWS_AS(parse({"--preset", "spark-z"}), usage_error);
}

TEST_CASE("a preset over two devices is refused where there is one", "[runner]") {
  test::cuda_machine const machine;
  CHECK_THROWS_WITH(parse({"--preset", "3090-c"}), ContainsSubstring("1 CUDA device;"));
  CHECK_THROWS_AS(parse({"--preset", "3090-c"}), not_supported);
}

}  // namespace terrace::runner
