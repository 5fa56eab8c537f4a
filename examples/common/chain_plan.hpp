// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "chains.hpp"
#include "options.hpp"

#include <terrace/format/catalog.hpp>
#include <terrace/runtime/pipeline.hpp>
#include <terrace/runtime/plan.hpp>

#include <cstdint>

namespace terrace::runner {

/// How a model will sit in a chain: decided, and checked against the machine, before any weight is
/// read.
struct chain_plan {
  chain_setup setup;
  runtime::requirements needs;
  runtime::plan memory;              ///< of the fastest level
  std::uint64_t capacity_bytes = 0;  ///< of the fastest level, staging included
  runtime::pipeline_options pipeline;
};

/// Main memory that tiers may use: what is free, less a reserve for the program itself.
[[nodiscard]] std::uint64_t usable_memory_bytes();

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

/// Bytes that a block of `bytes` counts for in the fastest tier of every chain.
[[nodiscard]] std::uint64_t counted_bytes(std::uint64_t bytes);

}  // namespace terrace::runner
