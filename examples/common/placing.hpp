// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "chains.hpp"

#include <terrace/chain/store.hpp>
#include <terrace/core/ids.hpp>
#include <terrace/format/catalog.hpp>
#include <terrace/runtime/pipeline.hpp>

#include <string>
#include <vector>

namespace terrace::runner {

/// Where rules put blocks, and what they pin.
struct placing {
  std::vector<block_placement> elsewhere;     ///< not in the fastest tier; home is the last level
  std::vector<std::vector<block_id>> pinned;  ///< per level from fast to slow
};

/// Errors: contract_error for rules that cannot be meant or that match nothing.
[[nodiscard]] placing place_blocks(format::catalog const& catalog,
                                   chain_entry const& chain,
                                   std::vector<std::string> const& rules);

/// Refuses blocks where whoever computes with them cannot read them. True if some experts lie where
/// the host may compute them for the device.
/// Errors: contract_error.
[[nodiscard]] bool check_readers(format::catalog const& catalog,
                                 chain_entry const& chain,
                                 placing const& placed,
                                 runtime::pipeline_options const& pipeline);

}  // namespace terrace::runner
