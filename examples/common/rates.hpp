// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "chain_plan.hpp"

#include <terrace/format/catalog.hpp>

#include <cstdint>
#include <string>

namespace terrace::runner {

/// What one generated token reads, and how fast this machine could at best read it.
struct expected_rates {
  std::uint64_t token_bytes = 0;  ///< weights a token is computed with
  std::uint64_t token_home_bytes =
      0;  ///< of those, read from the model file, if experts are chosen evenly
  double memory_bytes_per_s = 0;  ///< 0: not measured
  double home_bytes_per_s = 0;    ///< 0: not measured

  /// A bound: computing takes no time and reads of both kinds overlap. 0 when nothing was measured.
  [[nodiscard]] double tokens_per_s() const noexcept;
};

/// The bytes alone.
[[nodiscard]] expected_rates count_token_bytes(runtime::requirements const& needs,
                                               runtime::plan const& memory);

/// The bytes, and the machine's rates measured now: a sum over main memory and reads of the model's
/// files.
/// Cost: a few tenths of a second.
[[nodiscard]] expected_rates measure_rates(format::catalog const& catalog, chain_plan const& plan);

/// One or two lines for people.
[[nodiscard]] std::string describe(expected_rates const& rates);

}  // namespace terrace::runner
