// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/runtime/pipeline.hpp>
#include <terrace/runtime/plan.hpp>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

namespace terrace::runner {

/// A model known by its config.json alone.
struct paper_model {
  runtime::requirements needs;
  std::uint64_t dense_parameters = 0;
  std::uint64_t expert_parameters = 0;
  std::uint64_t active_parameters = 0;  ///< that one token is computed with
  double dense_bits = 16;               ///< per parameter, as the config says the weights are kept
  double expert_bits = 16;
};

/// "1026.4 B parameters, 32.1 B of them used for a token; experts at 4.5 bits, the rest at 16".
[[nodiscard]] std::string describe(paper_model const& model);

/// Whether a path names a config.json instead of weights.
[[nodiscard]] bool is_bare_config(std::filesystem::path const& model);

/// Sizes every block as the config describes the model. `counted` as for `runtime::inspect`.
/// Errors: what reading a config throws; not_supported for an architecture no runner takes.
[[nodiscard]] paper_model read_paper_model(
    std::filesystem::path const& config,
    runtime::pipeline_options const& options,
    std::function<std::uint64_t(std::uint64_t)> const& counted);

}  // namespace terrace::runner
