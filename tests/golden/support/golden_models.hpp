// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "made_model.hpp"
#include "support/scratch_folder.hpp"

#include <catch2/catch_message.hpp>
#include <catch2/catch_test_macros.hpp>

#include <filesystem>
#include <string>
#include <vector>

namespace terrace::golden {

/// A weight file or folder and the reference outputs that belong to it.
struct golden_model {
  std::string name;
  std::filesystem::path weights;
  std::filesystem::path golden;
};

/// One type per family, for tests that run once for each.
struct llama_tiny {
  static constexpr char const* name = "llama-tiny";
};
struct minimax_m2_tiny {
  static constexpr char const* name = "minimax-m2-tiny";
};
struct kimi_k2_tiny {
  static constexpr char const* name = "kimi-k2-tiny";
};
struct kimi_k3_tiny {
  static constexpr char const* name = "kimi-k3-tiny";
};
struct kimi_linear_made {
  static constexpr char const* name = "kimi-linear";
};

/// The GGUF in a folder of the reference models: BF16, but for experts that are MXFP4 as trained.
[[nodiscard]] inline std::filesystem::path reference_gguf(std::string const& name) {
  auto const folder = std::filesystem::path{TERRACE_GOLDEN_DIR} / name;
  auto const plain = folder / (name + ".gguf");
  return std::filesystem::exists(plain) ? plain : folder / (name + "-bf16.gguf");
}

/// The reference models with outputs of an independent implementation, each as GGUF and as
/// safetensors; skips the test when TERRACE_GOLDEN_DIR is not configured.
[[nodiscard]] inline golden_model reference_model(std::string const& name, bool safetensors) {
  std::filesystem::path const folder = TERRACE_GOLDEN_DIR;
  if (folder.empty()) {
    SKIP("TERRACE_GOLDEN_DIR is not configured, so " << name << " is not compared");
  }
  return {name + (safetensors ? " (safetensors)" : " (GGUF)"),
          safetensors ? folder / name : reference_gguf(name),
          folder / name / "golden.json"};
}

/// The quantised models of this repository with outputs that `exact` made.
[[nodiscard]] inline golden_model committed_model(std::string const& name) {
  auto const folder = std::filesystem::path{TERRACE_SOURCE_DIR} / "examples/models";
  if (!std::filesystem::exists(folder / (name + ".gguf"))) {
    SKIP("examples/models/" << name << ".gguf is not there");
  }
  return {name, folder / (name + ".gguf"), folder / (name + ".golden.json")};
}

/// A small model of random weights, written once in a run.
[[nodiscard]] inline std::filesystem::path made_once(synth::family family) {
  static test::scratch_folder const folder;
  auto const place = std::filesystem::path{folder.file(synth::name_of(family))};
  return std::filesystem::exists(place) ? place / "made.gguf" : make_model(family, place);
}

/// A model whose outputs are compared with themselves: the reference's where configured, else the
/// committed one, or one of random weights where there is neither.
[[nodiscard]] inline std::filesystem::path any_model(std::string const& name) {
  std::filesystem::path const folder = TERRACE_GOLDEN_DIR;
  if (name == kimi_linear_made::name) { return made_once(synth::family::kimi_linear); }
  if (name == kimi_k3_tiny::name && folder.empty()) { return made_once(synth::family::kimi_k3); }
  return folder.empty() ? committed_model(name).weights : reference_gguf(name);
}

}  // namespace terrace::golden
