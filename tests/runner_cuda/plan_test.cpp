// SPDX-License-Identifier: Apache-2.0
// Plans over device memory: caps that hold, sizes that do not, presets.
#include "chain_plan.hpp"
#include "presets.hpp"
#include "support/cuda_machine.hpp"
#include "support/golden_models.hpp"
#include "support/running_model.hpp"

#include <terrace/core/units.hpp>
#include <terrace/shim/cuda_memory.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <emulated_cuda/control.hpp>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace terrace::runner {
namespace {

using Catch::Matchers::ContainsSubstring;
using golden::running_model;
using golden::setup;

setup over(std::string const& chain) {
  return {.backend = runtime::compute_backend::cuda,
          .mode = numerics::exact,
          .context_tokens = 32,
          .chain = {.name = chain}};
}
setup with_cap(std::uint64_t bytes) {
  auto how = over("vram-nvme");
  how.chain.vram = size_request::parse(std::to_string(bytes));
  return how;
}
std::vector<float> some_logits(running_model& model) {
  std::vector<std::int32_t> const prompt{3, 1, 4, 1, 5};
  auto all = model.logits(prompt);
  for (std::int32_t const id : {9, 2, 6}) {
    auto const next = model.append(id);
    all.insert(all.end(), next.begin(), next.end());
  }
  return all;
}
/// The options of a preset under a cap of VRAM.
setup preset_of(std::string const& name, std::string const& vram) {
  options wanted;
  wanted.chain.vram = size_request::parse(vram);
  apply_preset(*find_preset(name), false, wanted);
  setup how = over(wanted.chain.name);
  how.backend = wanted.backend;
  how.dispatch = wanted.dispatch;
  how.chain = wanted.chain;
  return how;
}

}  // namespace

TEST_CASE("a cap of VRAM holds, and below the floor the smallest value that works is named",
          "[runner]") {
  test::cuda_machine const machine;
  auto const weights = golden::any_model("minimax-m2-tiny");
  std::vector<float> expected;
  std::uint64_t floor = 0;
  try {
    running_model model{weights, with_cap(1)};
    FAIL("one byte was accepted");
  } catch (out_of_capacity const& refused) {
    floor = refused.needed_bytes();
    CHECK_THAT(refused.what(),
               ContainsSubstring("--vram 1 ") &&
                   ContainsSubstring("the smallest value that works is " + std::to_string(floor)));
  }
  std::uint64_t last_read = 0;
  for (std::uint64_t const cap : {floor + 16 * mib, floor + 4 * mib, floor + mib, floor}) {
    CAPTURE(cap);
    emulated_cuda::reset();
    running_model model{weights, with_cap(cap)};
    auto const logits = some_logits(model);
    if (expected.empty()) { expected = logits; }
    CHECK(logits == expected);
    auto const tier = model.engine().counters().front();
    CHECK(tier.capacity_bytes == cap);
    CHECK(tier.peak_bytes <= cap);
    CHECK(tier.bytes_in >= last_read);  // smoothly: less memory, more reads
    last_read = tier.bytes_in;
    auto const planned = model.engine().plan().fastest().memory.predicted_peak_bytes;
    CHECK(emulated_cuda::peak_device_bytes() <= planned + std::max(planned / 50, 64 * mib));
  }
  CHECK_THROWS_AS((running_model{weights, with_cap(floor - 4096)}), out_of_capacity);
}

TEST_CASE("a slower tier that holds experts has a smallest size too", "[runner]") {
  test::cuda_machine const machine;
  auto const weights = golden::any_model("minimax-m2-tiny");
  auto how = over("vram-pinned-nvme");
  how.chain.place = {"_exps=pinned"};
  how.chain.pinned = size_request::parse("8KiB");
  CHECK_THROWS_WITH(
      (running_model{weights, how}),
      ContainsSubstring("--pinned 8192") && ContainsSubstring("the smallest value that works is"));
  std::uint64_t least = 0;
  try {
    running_model{weights, how};
  } catch (out_of_capacity const& refused) { least = refused.needed_bytes(); }
  how.chain.pinned = size_request::parse(std::to_string(least));
  running_model model{weights, how};
  CHECK_NOTHROW(some_logits(model));
  auto const tier = model.engine().counters()[1];
  CHECK(tier.name == "pinned");
  CHECK(tier.peak_bytes <= least);
}

TEST_CASE("blocks that nobody could read where they are placed are refused", "[runner]") {
  test::cuda_machine const machine;
  auto const weights = golden::any_model("minimax-m2-tiny");
  auto how = over("vram-dram-nvme");
  how.chain.place = {"attn_q=dram"};
  CHECK_THROWS_WITH((running_model{weights, how}), ContainsSubstring("the device does not read"));
  how.chain.place = {"_exps=dram"};
  CHECK_THROWS_WITH((running_model{weights, how}), ContainsSubstring("--dispatch host"));
  how.dispatch = "host";
  CHECK_NOTHROW(running_model{weights, how});
}

TEST_CASE("a way of dispatching without effect is refused", "[runner]") {
  test::cuda_machine const machine;
  auto how = over("vram-nvme");
  how.dispatch = "auto";
  CHECK_THROWS_WITH((running_model{golden::any_model("minimax-m2-tiny"), how}),
                    ContainsSubstring("--dispatch auto has no effect"));
  CHECK_THROWS_WITH((running_model{golden::any_model("llama-tiny"), how}),
                    ContainsSubstring("no routed experts"));
}

TEST_CASE("a device that is not there is named", "[runner]") {
  emulated_cuda::machine_facts none;
  none.devices = 0;
  test::cuda_machine const machine{none};
  CHECK_THROWS_WITH((running_model{golden::any_model("llama-tiny"), over("vram-nvme")}),
                    ContainsSubstring("this machine has 0"));
}

TEST_CASE("presets run, and who computes an expert changes logits by rounding only", "[runner]") {
  test::cuda_machine const machine;
  auto const weights = golden::any_model("minimax-m2-tiny");
  std::vector<float> expected;
  for (auto const* name :
       {"spark-a", "spark-b", "spark-c", "spark-d", "spark-e", "3090-a", "3090-b"}) {
    CAPTURE(name);
    auto how = preset_of(name, std::string{name} == "spark-e" ? "" : "512MiB");
    running_model model{weights, how};
    auto const logits = some_logits(model);
    if (expected.empty()) { expected = logits; }
    CHECK(golden::relative_distance(logits, expected) < 1e-5);
  }
}

TEST_CASE("a preset that keeps everything on the device says what is missing", "[runner]") {
  test::cuda_machine const machine;
  auto const weights = golden::any_model("minimax-m2-tiny");
  auto const all = running_model{weights, preset_of("spark-d", "512MiB")}
                       .engine()
                       .plan()
                       .fastest()
                       .memory.predicted_peak_bytes;
  auto const half = std::to_string(all / 2);
  CHECK_THROWS_WITH((running_model{weights, preset_of("spark-d", half)}),
                    ContainsSubstring("--preset spark-d keeps everything in unified") &&
                        ContainsSubstring("bytes are missing"));
  CHECK_NOTHROW(running_model{weights, preset_of("spark-a", half)});
}

}  // namespace terrace::runner
