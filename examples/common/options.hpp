// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "sizes.hpp"

#include <terrace/core/error.hpp>
#include <terrace/core/numerics.hpp>
#include <terrace/runtime/pipeline.hpp>
#include <terrace/runtime/sampler.hpp>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
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

struct preset;

/// The chain, its sizes and its policies.
struct chain_options {
  std::string name;
  std::optional<size_request> vram{}, unified{}, pinned{}, dram{};
  std::optional<sized_path> pmem{};
  std::vector<std::string> place{};
  std::optional<slot_request> experts{};
  std::optional<std::string> evict{};
  std::optional<std::string> prefetch{};

  preset const* made_by = nullptr;  ///< places the experts; null: `place` does
  bool buffered = false;            ///< the model file is read through the page cache

  /// The cap of a tier that has one, by its name.
  [[nodiscard]] std::optional<size_request> cap_of(std::string_view tier) const {
    return tier == "vram" ? vram : tier == "unified" ? unified : tier == "pinned" ? pinned : dram;
  }
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
  runtime::compute_backend backend = runtime::compute_backend::cpu;
  int device = 0;                   ///< of the cuda backend and of tiers that belong to one
  std::string dispatch = "device";  ///< of the cuda backend
  std::optional<bool> half_kv;      ///< f16 or f32; unset: f32 under exact, else f16
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
