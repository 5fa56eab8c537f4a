// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "chains.hpp"
#include "options.hpp"

#include <terrace/format/catalog.hpp>
#include <terrace/runtime/pipeline.hpp>
#include <terrace/runtime/plan.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace terrace::runner {

/// How one level of a chain will be used.
struct level_plan {
  tier_entry const* tier = nullptr;
  std::uint64_t capacity_bytes = 0;  ///< staging and what kernels work with included
  runtime::plan memory{};            ///< of the fastest level, `pinned` lists those of all levels
};

/// How a model will sit in a chain: decided, and checked against the machine, before any weight is
/// read.
struct chain_plan {
  chain_setup setup;
  runtime::requirements needs;
  std::vector<std::string> rules;            ///< that placed blocks
  std::vector<level_plan> levels;            ///< fast to slow, without home
  std::uint64_t uncapped_staging_bytes = 0;  ///< of main memory, in chains that have none of it
  runtime::pipeline_options pipeline;

  [[nodiscard]] level_plan const& fastest() const { return levels.front(); }
};

/// Errors: out_of_capacity with the smallest value that works; not_supported or contract_error for an option that has
///         no effect on this model or chain; what `runtime::inspect` throws.
[[nodiscard]] chain_plan plan_chain(format::catalog const& catalog,
                                    chain_options const& wanted,
                                    runtime::pipeline_options pipeline);

/// The same for a model whose weights are not here: no tensor can be placed, and no cap means as
/// much as it takes, whatever is free on this machine.
[[nodiscard]] chain_plan plan_on_paper(runtime::requirements needs,
                                       chain_options const& wanted,
                                       runtime::pipeline_options pipeline);

}  // namespace terrace::runner
