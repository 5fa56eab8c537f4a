// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "model_files.hpp"
#include "shape.hpp"
#include "type_options.hpp"

#include <terrace/core/error.hpp>
#include <terrace/core/named_choice.hpp>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace terrace::synth {

/// What the command line asks for.
struct command {
  model_request model;
  std::filesystem::path folder;  ///< where the files go; made when missing
  bool dry_run = false;
  int threads = 1;
  std::string help;  ///< not empty: print this and end
};

namespace detail {

class command_line {
 public:
  command_line() {
    app_.add_option("OUT", out_, "A .gguf file to write, or a folder for safetensors");
    app_.add_option("--family", family_, "llama, minimax-m2, kimi-k2, kimi-k3 or kimi-linear");
    app_.add_option(
        "--size",
        size_,
        "Start from the dimensions of the published model (real, the default; for llama "
        "also 8b, 70b and 405b) or of one that runs anywhere (tiny)");
    for (dimension const& each : dimensions) {
      app_.add_option_function<int>(
          std::string{each.option},
          [this, &each](int value) { given_.emplace_back(&each, value); },
          std::string{each.help});
    }
    for (type_option const& each : type_options) {
      app_.add_option_function<std::string>(
          std::string{each.option},
          [this, &each](std::string const& name) { types_[each.option] = name; },
          std::string{each.help});
    }
    app_.add_option("--container", container_, "gguf or safetensors (as OUT says)");
    app_.add_option("--splits", splits_, "Write the weights as N files of about one size (1)");
    app_.add_option(
        "--zipf", zipf_, "Let routers choose experts by a Zipf law of this exponent (0: evenly)");
    app_.add_option("--seed", seed_, "What the random weights follow from (0)");
    app_.add_option("--threads", threads_, "Threads that make weights (all processors)");
    app_.add_flag("--dry-run", dry_run_, "Print names, types and bytes, and write nothing");
  }

  command parse(int argc, char const* const* argv) {
    command read;
    try {
      app_.parse(argc, argv);
    } catch (CLI::CallForHelp const&) {
      read.help = app_.help();
      return read;
    } catch (CLI::ParseError const& refused) {
      throw contract_error{std::string{refused.what()} + "; see --help"};
    }
    read.model.safetensors = is_safetensors();
    read.model.shape = shape();
    read.model.types = chosen_types(read.model.shape.family, read.model.safetensors, types());
    numbers(read);
    place(read);
    return read;
  }

 private:
  [[nodiscard]] family family_named() const {
    std::vector<std::string_view> names;
    for (auto const& entry : families) {
      if (entry.name == family_) { return entry.value; }
      names.push_back(entry.name);
    }
    throw contract_error{family_.empty()
                             ? "--family is missing; give " + list_of(names)
                             : "--family: `" + family_ + "` is not known; give " + list_of(names)};
  }

  [[nodiscard]] bool is_safetensors() const {
    if (container_ == "gguf") { return false; }
    if (container_ == "safetensors") { return true; }
    if (!container_.empty()) {
      throw contract_error{"--container: `" + container_ +
                           "` is not known; give gguf or safetensors"};
    }
    return !out_.empty() && !out_.ends_with(".gguf");
  }

  [[nodiscard]] model_shape shape() const {
    family const which = family_named();
    bool const llama_size = size_ == "8b" || size_ == "70b" || size_ == "405b";
    if (size_ != "real" && size_ != "tiny" && !(llama_size && which == family::llama)) {
      throw contract_error{"--size: `" + size_ + "` is no size of " + family_ + "; give real" +
                           (which == family::llama ? ", 8b, 70b, 405b" : "") + " or tiny"};
    }
    model_shape made = size_ == "tiny" ? small_shape(which)
                       : llama_size    ? real_shape(which, size_)
                                       : real_shape(which);
    for (auto const& [each, value] : given_) {
      if (!is_used(*each, which)) {
        throw contract_error{std::string{each->option} + " has no effect on " + family_ +
                             ", which has no such dimension; leave it out"};
      }
      made.*each->value = value;
    }
    bool const head_given = std::any_of(given_.begin(), given_.end(), [](auto const& one) {
      return one.first->value == &model_shape::head_dim;
    });
    if (which == family::llama && head_given) { made.rope_dim = made.head_dim; }
    check(made);
    return made;
  }

  [[nodiscard]] std::map<std::string_view, std::string> const& types() const {
    family const which = family_named();
    for (type_option const& each : type_options) {
      if (types_.contains(each.option) && (each.used_by & static_cast<unsigned>(which)) == 0) {
        throw contract_error{std::string{each.option} + " has no effect on " + family_ +
                             ", which has no such tensors; leave it out"};
      }
    }
    return types_;
  }

  void numbers(command& read) const {
    if (!(zipf_ >= 0 && zipf_ <= 8)) {
      throw contract_error{"--zipf is " + std::to_string(zipf_) + "; it goes from 0 to 8"};
    }
    if (zipf_ > 0 && read.model.shape.experts == 0) {
      throw contract_error{"--zipf has no effect on " + family_ +
                           ", which has no routers; leave it out"};
    }
    if (splits_ < 1 || splits_ > 9999) {
      throw contract_error{"--splits is " + std::to_string(splits_) + "; it goes from 1 to 9999"};
    }
    if (threads_ < 0 || threads_ > 1024) {
      throw contract_error{"--threads is " + std::to_string(threads_) + "; it goes from 1 to 1024"};
    }
    read.model.zipf = zipf_;
    read.model.seed = seed_;
    read.model.splits = static_cast<std::uint32_t>(splits_);
    read.dry_run = dry_run_;
    read.threads = threads_ > 0
                       ? threads_
                       : static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  }

  void place(command& read) const {
    if (out_.empty() && !dry_run_) {
      throw contract_error{"OUT is missing; name a .gguf file or a folder to write"};
    }
    std::filesystem::path const out{out_.empty() ? family_ + ".gguf" : out_};
    if (read.model.safetensors) {
      read.folder = out;
      read.model.name = std::filesystem::absolute(out).lexically_normal().filename().string();
      return;
    }
    if (out.extension() != ".gguf") {
      throw contract_error{out_ +
                           ": the name of a GGUF ends in .gguf; name the file so, or give "
                           "--container safetensors"};
    }
    read.folder = out.has_parent_path() ? out.parent_path() : std::filesystem::path{"."};
    read.model.name = out.stem().string();
  }

  CLI::App app_{
      "Writes a model of random weights: any family, size, types and number of experts, with "
      "magnitudes under which it computes sanely.",
      "terrace-synth"};
  std::string out_, family_, size_ = "real", container_;
  std::vector<std::pair<dimension const*, int>> given_;
  std::map<std::string_view, std::string> types_;
  double zipf_ = 0;
  std::uint64_t seed_ = 0;
  int splits_ = 1;
  int threads_ = 0;
  bool dry_run_ = false;
};

}  // namespace detail

/// Errors: contract_error in one sentence for anything that cannot be meant.
[[nodiscard]] inline command parse_command(int argc, char const* const* argv) {
  return detail::command_line{}.parse(argc, argv);
}

}  // namespace terrace::synth
