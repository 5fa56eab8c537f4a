// SPDX-License-Identifier: Apache-2.0
// terrace-synth as a program, and what the runners make of its models.
#include "runner/support/program.hpp"
#include "support/scratch_folder.hpp"
#include "synth/routing_skew.hpp"

#include <terrace/observe/routing_trace.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <functional>
#include <sstream>
#include <string>
#include <vector>

using namespace terrace;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::WithinRel;
using runner::test::outcome;
using runner::test::program;
using test::bytes_of;
using test::scratch_folder;

namespace {

using words = std::vector<std::string>;

outcome synth_of(words arguments) { return program{TERRACE_SYNTH, std::move(arguments)}.run(); }

/// Exit status 1, one sentence with `part`, and nothing on standard output.
void check_refused(words arguments, std::string const& part) {
  auto const done = synth_of(std::move(arguments));
  INFO(done.err);
  CHECK(done.status == 1);
  CHECK(done.out.empty());
  CHECK_THAT(done.err, ContainsSubstring(part));
  CHECK(std::count(done.err.begin(), done.err.end(), '\n') == 1);
}

/// Standard deviation of the logits after a prompt, from a run that also generates some tokens.
double spread_after(std::string const& runner,
                    std::string const& model,
                    std::string const& logits) {
  auto const done =
      program{
          runner,
          {"-m", model, "-p", "once upon a time", "-n", "4", "--ignore-eos", "--logits", logits}}
          .run();
  INFO(done.err);
  REQUIRE(done.status == 0);
  std::string const bytes = bytes_of(logits);
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(float));
  double sum = 0;
  for (float const value : values) { sum += static_cast<double>(value) * value; }
  return std::sqrt(sum / static_cast<double>(values.size()));
}

struct runnable {
  char const* family;
  char const* runner;
};
constexpr runnable runnables[] = {
    {"llama", TERRACE_LLAMA}, {"minimax-m2", TERRACE_MINIMAX}, {"kimi-k2", TERRACE_KIMI}};

}  // namespace

TEST_CASE("a small model of each family runs, with logits of the spread it was made for",
          "[tools]") {
  for (auto const& [family, runner] : runnables) {
    for (std::string const name : {"model.gguf", "folder"}) {
      scratch_folder const folder;
      auto const path = folder.file(name);
      INFO(family << ' ' << name);
      auto const made = synth_of({path, "--family", family, "--size", "tiny"});
      INFO(made.err);
      REQUIRE(made.status == 0);
      CHECK_THAT(spread_after(runner, path, folder.file("logits")), WithinRel(2.0, 0.2));
    }
  }
}

TEST_CASE("depth does not change the magnitude of what a model computes", "[tools]") {
  scratch_folder const folder;
  auto const path = folder.file("deep.gguf");
  REQUIRE(synth_of({path,
                    "--family",
                    "kimi-k2",
                    "--size",
                    "tiny",
                    "--layers",
                    "40",
                    "--experts",
                    "8",
                    "--experts-type",
                    "iq2_xxs",
                    "--experts-down-type",
                    "mxfp4",
                    "--dense-type",
                    "q4_k"})
              .status == 0);
  CHECK_THAT(spread_after(TERRACE_KIMI, path, folder.file("logits")), WithinRel(2.0, 0.2));
}

TEST_CASE("routers choose experts by the Zipf law asked for", "[tools]") {
  scratch_folder const folder;
  auto const path = folder.file("skewed.gguf");
  REQUIRE(synth_of({path,
                    "--family",
                    "minimax-m2",
                    "--size",
                    "tiny",
                    "--experts",
                    "32",
                    "--zipf",
                    "0.8",
                    "--layers",
                    "2"})
              .status == 0);
  std::ostringstream ids;
  for (int i = 0; i < 1500; ++i) { ids << (i == 0 ? "" : ",") << (i * 37 + i / 7) % 1900; }
  auto const done =
      program{
          TERRACE_MINIMAX,
          {"-m", path, "--prompt-ids", ids.str(), "-n", "1", "--routing", folder.file("routing")}}
          .run();
  INFO(done.err);
  REQUIRE(done.status == 0);
  auto const trace = observe::read_routing_trace(folder.file("routing"));
  auto const shares = synth::zipf_shares(32, 4, 0.8);
  for (std::size_t layer = 0; layer < trace.layers; ++layer) {
    std::vector<double> counts(32, 0);
    for (std::size_t token = 0; token < trace.tokens.size(); ++token) {
      for (auto const expert : trace.at(token, layer)) { ++counts[expert]; }
    }
    std::sort(counts.begin(), counts.end(), std::greater{});
    auto const tokens = static_cast<double>(trace.tokens.size());
    INFO("layer " << layer);
    CHECK_THAT(counts[0] / tokens, WithinRel(shares[0], 0.3));
    CHECK_THAT(counts[7] / tokens, WithinRel(shares[7], 0.4));
    CHECK(counts[0] > 4 * counts[24]);
  }
}

TEST_CASE("a dry run prints names, bytes and their sum, and writes nothing", "[tools]") {
  scratch_folder const folder;
  auto const path = folder.file("none/model.gguf");
  auto const done = synth_of({path,
                              "--family",
                              "kimi-k2",
                              "--layers",
                              "4",
                              "--experts",
                              "384",
                              "--experts-type",
                              "q4_k",
                              "--dry-run"});
  CHECK(done.status == 0);
  CHECK_THAT(
      done.out,
      ContainsSubstring("blk.3.ffn_down_exps.weight  q4_k  [384, 7168, 2048]  3170893824\n"));
  CHECK_THAT(done.out, ContainsSubstring("70 tensors, 32063"));
  CHECK_FALSE(std::filesystem::exists(folder.file("none")));
}

TEST_CASE("a full disk ends in one sentence and leaves nothing behind", "[tools]") {
  scratch_folder const folder;
  auto const path = folder.file("new/model.gguf");
  auto const command = std::string{"ulimit -f 64; exec "} + TERRACE_SYNTH + ' ' + path +
                       " --family llama --size tiny";
  auto const done = program{"/bin/bash", {"-c", command}}.run();
  INFO(done.err);
  CHECK(done.status == 1);
  CHECK_THAT(done.err, ContainsSubstring(path) && ContainsSubstring("cannot be written"));
  CHECK(std::count(done.err.begin(), done.err.end(), '\n') == 1);
  CHECK_FALSE(std::filesystem::exists(folder.file("new")));
  check_refused({folder.file("huge.gguf"), "--family", "kimi-k3", "--layers", "4096"},
                "free where");
}

TEST_CASE("arguments that cannot be meant end in one sentence", "[tools]") {
  scratch_folder const folder;
  auto const out = folder.file("x.gguf");
  check_refused({out}, "--family is missing");
  check_refused({out, "--family", "gpt-2"}, "`gpt-2`");
  check_refused({"--family", "llama"}, "OUT is missing");
  check_refused({out, "--family", "llama", "--experts", "4"}, "--experts has no effect");
  check_refused({out, "--family", "llama", "--experts-type", "q4_k"},
                "--experts-type has no effect");
  check_refused({out, "--family", "llama", "--layers", "many"}, "many");
  check_refused({out, "--family", "llama", "--zipf", "1"}, "--zipf has no effect");
  check_refused({out, "--family", "kimi-k2", "--zipf", "nan"}, "--zipf");
  check_refused({out, "--family", "kimi-k2", "--size", "8b"}, "`8b`");
  check_refused({out, "--family", "kimi-k2", "--experts-type", "q4"}, "`q4`");
  check_refused({out, "--family", "kimi-k2", "--experts-type", "int4_g32"}, "GGUF");
  check_refused({out, "--family", "kimi-k2", "--splits", "0"}, "--splits");
  check_refused({out, "--family", "kimi-k2", "--size", "tiny", "--splits", "9999"}, "tensors");
  check_refused({out, "--family", "kimi-k2", "--no-such"}, "--no-such");
  auto const taken = folder.write("taken", "x");
  check_refused({taken + "/x.gguf", "--family", "llama", "--size", "tiny"}, "taken");
  check_refused({folder.file(""), "--family", "llama", "--size", "tiny"}, "not empty");
}
