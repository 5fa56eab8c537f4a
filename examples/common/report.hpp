// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "chain_plan.hpp"
#include "likelihood.hpp"
#include "rates.hpp"

#include <terrace/observe/counters.hpp>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace terrace::runner {

/// What a run has to say about itself; the fields of the JSON object.
struct run_report {
  std::string model;
  std::string chain;
  std::vector<std::int32_t> prompt_ids;
  std::vector<std::int32_t> ids;
  std::string text;
  double prefill_tokens_per_s = 0;
  double decode_tokens_per_s = 0;
  double load_s = 0;
  double first_token_s = 0;
  std::vector<observe::tier_counters> tiers;
  std::optional<likelihood> nll;
};

/// One JSON object on one line, ending with a newline. `rates` are null where nothing was measured.
[[nodiscard]] std::string to_json(run_report const& report,
                                  chain_plan const& plan,
                                  expected_rates const* rates);

/// The plan as a table of what goes where, for people.
[[nodiscard]] std::string describe(chain_plan const& plan);
/// The same in one line.
[[nodiscard]] std::string summarise(chain_plan const& plan);

}  // namespace terrace::runner
