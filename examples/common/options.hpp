// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "sizes.hpp"

#include <terrace/core/error.hpp>
#include <terrace/core/numerics.hpp>
#include <terrace/runtime/sampler.hpp>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace terrace::runner {

/// The command line asks for something that cannot be meant; exit status 2.
class usage_error : public error {
 public:
  using error::error;
};

/// Where the prompt comes from; at most one of text, file, ids and messages is set.
struct prompt_options {
  std::optional<std::string> text;
  std::optional<std::filesystem::path> file;  ///< "-" is standard input
  std::optional<std::vector<std::int32_t>> ids;
  std::optional<std::filesystem::path> messages;
  bool chat = false;  ///< the text is a user's message
  std::optional<std::string> system;
  std::optional<bool> thinking;

  [[nodiscard]] bool given() const noexcept { return text || file || ids || messages; }
};

/// The chain, its sizes and its policies.
struct chain_options {
  std::string name;
  std::optional<size_request> dram;
  std::optional<sized_path> pmem;
  std::vector<std::string> place;
  std::optional<slot_request> experts;
  std::optional<std::string> evict;
  std::optional<std::string> prefetch;
};

struct output_options {
  std::optional<std::string> json;  ///< "-" is standard output
  std::optional<std::filesystem::path> logits;
  std::optional<std::filesystem::path> routing;
  std::optional<std::filesystem::path> trace;
};

/// "pp512" or "tg128".
struct bench_item {
  bool prefill = false;
  int tokens = 0;
};

struct options {
  std::filesystem::path model;
  prompt_options prompt;
  int tokens = 64;
  bool ignore_eos = false;
  runtime::sampler_options sampler;
  int context = 0;  ///< 0: what the run needs
  int threads = 0;  ///< 0: the processors this process may use
  numerics mode = numerics::fast;
  std::optional<bool> half_kv;  ///< f16 or f32; unset: f32 under exact, else f16
  chain_options chain;
  output_options output;
  std::optional<std::filesystem::path> nll_text;
  std::optional<std::filesystem::path> nll_ids;
  std::vector<bench_item> bench;
  int repetitions = 5;
  bool plan_only = false;
  bool list_chains = false;
  bool help = false;  ///< `help_text` was asked for; everything else is unset
  std::string help_text;
};

/// Reads and checks a command line; nothing is opened.
/// Errors: usage_error for what cannot be meant (unknown options, malformed values, options that contradict each other
///         or that others leave without effect); not_supported for what this build does not have.
[[nodiscard]] options parse_command_line(int argc, char const* const* argv);

}  // namespace terrace::runner
