// SPDX-License-Identifier: Apache-2.0
// terrace-quant-check: decodes the quantised tensors of a GGUF file and compares them, bit for bit,
// with the float32 tensors stored beside them.
#include "quant_check.hpp"

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <fmt/format.h>

#include <cstddef>
#include <cstdio>
#include <exception>
#include <string>

namespace {

int check(std::string const& path) {
  auto const results = terrace::quant_check::checker{path}.run();
  std::size_t passed = 0;
  std::size_t failed = 0;
  for (auto const& [type, result] : results) {
    std::string verdict = result.failures.empty() ? "passed" : "FAILED";
    for (auto const& failure : result.failures) { verdict += "; " + failure; }
    std::size_t const tensors = result.passed + result.failures.size();
    fmt::print("{:9} {:>4} tensor{} {:>10} values  {}\n",
               std::string{terrace::name_of(type)},
               tensors,
               tensors == 1 ? " " : "s",
               result.values,
               verdict);
    passed += result.passed;
    failed += result.failures.size();
  }
  if (results.empty()) {
    fmt::print("{}: no tensor is named `*.quantised`; there is nothing to compare\n", path);
  }
  fmt::print("{} passed, {} failed\n", passed, failed);
  return failed == 0 && passed > 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  std::string path;
  CLI::App app{
      "Compares every tensor X.quantised of a GGUF file, decoded, with the float32 tensor "
      "X.dequantised in it, bit for bit.",
      "terrace-quant-check"};
  app.add_option("FILE", path, "GGUF file, or any shard of a split one")->required();
  try {
    app.parse(argc, argv);
  } catch (CLI::CallForHelp const&) {
    fmt::print("{}", app.help());
    return 0;
  } catch (CLI::ParseError const& refused) {
    fmt::print(stderr, "terrace-quant-check: {}; see --help\n", refused.what());
    return 2;
  }
  try {
    return check(path);
  } catch (std::exception const& failed) {
    fmt::print(stderr, "terrace-quant-check: {}\n", failed.what());
    return 1;
  }
}
