// SPDX-License-Identifier: Apache-2.0
// terrace-quantize: writes a GGUF model with its matrices in quantised types.
#include "quantize.hpp"

#include <terrace/core/error.hpp>
#include <terrace/core/named_choice.hpp>
#include <terrace/core/quant_type.hpp>
#include <terrace/core/units.hpp>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <fmt/format.h>

#include <cstdio>
#include <exception>
#include <filesystem>
#include <optional>
#include <regex>
#include <string>
#include <string_view>
#include <vector>

namespace terrace::quantize {
namespace {

class usage_error : public error {
 public:
  using error::error;
};

struct request {
  std::string from;
  std::string to;
  type_rules rules;
};

quant_type type_named(std::string_view option, std::string_view name) {
  auto const type = quant_type_named(name);
  if (type && quant::is_encodable(*type)) { return *type; }
  std::vector<std::string_view> known;
  for (auto const& traits : quant_table) {
    if (quant::is_encodable(traits.type)) { known.push_back(traits.name); }
  }
  throw usage_error{fmt::format(
      "{}: `{}` is no type that can be written; choose {}", option, name, list_of(known))};
}

name_rule rule_of(std::string const& text) {
  auto const at = text.rfind('=');
  if (at == std::string::npos || at == 0) {
    throw usage_error{fmt::format("--rule: `{}` is not REGEX=TYPE", text)};
  }
  try {
    return {std::regex{text.substr(0, at)}, type_named("--rule", text.substr(at + 1))};
  } catch (std::regex_error const& refused) {
    throw usage_error{
        fmt::format("--rule: `{}` is no regular expression ({})", text, refused.what())};
  }
}

/// Nothing if the command line asked for help, which has been printed.
std::optional<request> parse(int argc, char const* const* argv) {
  request asked;
  std::string dense;
  std::string experts;
  std::string vocab;
  std::vector<std::string> fallback{"q8_0"};
  std::vector<std::string> rules;
  CLI::App app{
      "Writes a GGUF model with its matrices in quantised types. Norms, routers, biases and "
      "tensors "
      "that are quantised already are copied, and so is all metadata.",
      "terrace-quantize"};
  app.add_option("IN", asked.from, "GGUF file, or any shard of a split one")->required();
  app.add_option("OUT", asked.to, "GGUF file to write")->required();
  app.add_option("--type", dense, "Type of matrices")->required();
  app.add_option("--expert-type", experts, "Type of routed experts (as --type)");
  app.add_option("--vocab-type", vocab, "Type of token embedding and output head (as --type)");
  app.add_option(
      "--rule", rules, "REGEX=TYPE: type of tensors by name; the first that matches wins");
  app.add_option("--fallback",
                 fallback,
                 "Types for rows that are not whole blocks of the type asked for, the first that "
                 "fits; with none such tensors are copied (q8_0)")
      ->delimiter(',');
  try {
    app.parse(argc, argv);
  } catch (CLI::CallForHelp const&) {
    fmt::print("{}", app.help());
    return std::nullopt;
  } catch (CLI::ParseError const& refused) {
    throw usage_error{fmt::format("{}; see --help", refused.what())};
  }
  asked.rules.dense = type_named("--type", dense);
  if (!experts.empty()) { asked.rules.experts = type_named("--expert-type", experts); }
  if (!vocab.empty()) { asked.rules.vocab = type_named("--vocab-type", vocab); }
  for (auto const& rule : rules) { asked.rules.by_name.push_back(rule_of(rule)); }
  asked.rules.fallback.clear();
  for (auto const& name : fallback) {
    asked.rules.fallback.push_back(type_named("--fallback", name));
  }
  return asked;
}

int run(int argc, char const* const* argv) {
  auto const asked = parse(argc, argv);
  if (!asked) { return 0; }
  if (std::filesystem::is_directory(asked->from)) {
    throw format_error{
        asked->from +
        ": a folder, where a GGUF file must be named; convert safetensors to GGUF first"};
  }
  auto const written = quantize(asked->from, asked->to, asked->rules);
  for (auto const& [type, group] : written.by_type) {
    fmt::print("{:9} {:>5} tensors  {}\n",
               std::string{name_of(type)},
               group.tensors,
               format_size(group.bytes));
  }
  for (auto const& name : written.fell_back) {
    fmt::print("{} fell back: its rows are not whole blocks of {}\n",
               name,
               name_of(asked->rules.wanted_for(name)));
  }
  fmt::print("{}: {}\n", asked->to, format_size(std::filesystem::file_size(asked->to)));
  return 0;
}

}  // namespace
}  // namespace terrace::quantize

int main(int argc, char** argv) {
  try {
    return terrace::quantize::run(argc, argv);
  } catch (terrace::quantize::usage_error const& refused) {
    fmt::print(stderr, "terrace-quantize: {}\n", refused.what());
    return 2;
  } catch (std::exception const& failed) {
    fmt::print(stderr, "terrace-quantize: {}\n", failed.what());
    return 1;
  }
}
