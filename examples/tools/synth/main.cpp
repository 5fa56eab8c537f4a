// SPDX-License-Identifier: Apache-2.0
// terrace-synth: writes a model of random weights in any family, size and quantisation.
#include "command.hpp"
#include "file_writer.hpp"
#include "model_files.hpp"

#include <terrace/core/error.hpp>
#include <terrace/core/quant_type.hpp>
#include <terrace/core/units.hpp>
#include <terrace/observe/progress.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <string>
#include <system_error>

namespace terrace::synth {
namespace {

void warn(planned_model const& model) {
  for (substitution const& one : model.substitutions) {
    fmt::print(stderr,
               "{} and tensors like it are {}: rows of {} are not whole blocks of {}\n",
               one.tensor,
               name_of(one.used),
               one.columns,
               name_of(one.asked));
  }
}

void print(planned_model const& model, bool safetensors) {
  for (stored_tensor const& tensor : model.tensors) {
    fmt::print("{}  {}  [{}]  {}\n",
               tensor.name,
               safetensors ? std::string{tensor.dtype} : std::string{name_of(tensor.type)},
               fmt::join(tensor.shape, ", "),
               tensor.bytes);
  }
  for (planned_file const& file : model.files) { fmt::print("{}  {}\n", file.name, file.bytes); }
  fmt::print("{} tensors, {} bytes ({})\n",
             model.tensors.size(),
             model.bytes(),
             format_size(model.bytes()));
}

/// A folder that holds weights already would become a model of two kinds.
void require_empty(std::filesystem::path const& folder) {
  std::error_code code;
  for (auto const& entry : std::filesystem::directory_iterator{folder, code}) {
    if (entry.path().extension() != ".partial") {
      throw io_error{folder.string() + ": is not empty; name a folder that is new or empty",
                     EEXIST};
    }
  }
}

/// Makes `folder` and, when the write fails, removes it again.
void write(command const& asked, planned_model const& model) {
  std::error_code code;
  bool const made = std::filesystem::create_directories(asked.folder, code);
  if (code) {
    throw io_error{asked.folder.string() + ": cannot be made (" + code.message() + ")",
                   code.value()};
  }
  if (asked.model.safetensors) { require_empty(asked.folder); }
  observe::progress line{stderr, "writing"};
  auto const start = std::chrono::steady_clock::now();
  try {
    write_model(model, asked.folder, asked.model.seed, asked.threads, [&](std::uint64_t done) {
      line.bytes(done, model.bytes());
    });
  } catch (...) {
    if (made) { std::filesystem::remove(asked.folder, code); }
    throw;
  }
  line.finish();
  double const seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  fmt::print("{}: {} in {} tensors, {:.1f} s, {}/s\n",
             (asked.folder / model.files.front().name).string(),
             format_size(model.bytes()),
             model.tensors.size(),
             seconds,
             format_size(static_cast<std::uint64_t>(static_cast<double>(model.bytes()) / seconds)));
}

int run(int argc, char const* const* argv) {
  command const asked = parse_command(argc, argv);
  if (!asked.help.empty()) {
    fmt::print("{}", asked.help);
    return 0;
  }
  planned_model const model = plan_model(asked.model);
  warn(model);
  if (asked.dry_run) {
    print(model, asked.model.safetensors);
  } else {
    write(asked, model);
  }
  return 0;
}

}  // namespace
}  // namespace terrace::synth

int main(int argc, char** argv) {
  std::signal(SIGXFSZ, SIG_IGN);  // a file over the size limit is an error with a sentence
  try {
    return terrace::synth::run(argc, argv);
  } catch (std::exception const& failed) {
    fmt::print(stderr, "terrace-synth: {}\n", failed.what());
    return 1;
  }
}
