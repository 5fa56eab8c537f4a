// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "synth/file_writer.hpp"
#include "synth/model_files.hpp"
#include "synth/shape.hpp"
#include "synth/type_options.hpp"

#include <filesystem>

namespace terrace::golden {

/// Writes a small model of random weights into `folder`; returns what to open.
inline std::filesystem::path make_model(synth::family family,
                                        std::filesystem::path const& folder,
                                        bool safetensors = false) {
  std::filesystem::create_directories(folder);
  synth::write_model(synth::plan_model({.shape = synth::small_shape(family),
                                        .types = synth::usual_types(family, safetensors),
                                        .safetensors = safetensors,
                                        .name = "made"}),
                     folder,
                     /*seed=*/0,
                     /*threads=*/1,
                     [](auto) {});
  return safetensors ? folder : folder / "made.gguf";
}

}  // namespace terrace::golden
