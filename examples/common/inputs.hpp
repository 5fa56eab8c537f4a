// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "likelihood.hpp"
#include "options.hpp"

#include <terrace/format/catalog.hpp>
#include <terrace/runtime/plan.hpp>
#include <terrace/tokenize/tokenizer.hpp>

#include <cstdint>
#include <optional>
#include <vector>

namespace terrace::runner {

/// What a run feeds to its model.
struct run_inputs {
  std::optional<tokenize::tokenizer> tokenizer;  ///< opened where a text has to be read or shown
  std::vector<std::int32_t> prompt;
  std::vector<token_window> windows;  ///< whose likelihood is asked for
};

/// `context_limit` is the model's own.
/// Errors: what reading and tokenising files throws.
[[nodiscard]] run_inputs read_inputs(options const& wanted,
                                     format::catalog const& catalog,
                                     int context_limit);

/// What --ctx says, or the longest sequence of the run within the model's limit; 0 when nothing
/// will run.
[[nodiscard]] int choose_context(options const& wanted,
                                 run_inputs const& inputs,
                                 int context_limit);

/// Errors: contract_error for an id outside the vocabulary and for a sequence that does not fit the context.
void check_inputs(options const& wanted,
                  run_inputs const& inputs,
                  runtime::requirements const& needs);

}  // namespace terrace::runner
