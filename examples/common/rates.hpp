// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "chain_plan.hpp"

#include <terrace/format/catalog.hpp>

#include <array>
#include <cstdint>
#include <string>

namespace terrace::runner {

/// What one generated token reads, and how fast this machine could at best read it.
struct expected_rates {
  std::uint64_t token_bytes = 0;  ///< weights a token is computed with
  std::uint64_t token_home_bytes =
      0;  ///< of those, read from the model file, if experts are chosen evenly
  std::uint64_t token_expert_bytes = 0;  ///< of the experts it uses
  std::uint64_t streamed_bytes = 0;      ///< of dense weights that have no room and are read anew
  double memory_bytes_per_s = 0;         ///< 0: not measured
  double home_bytes_per_s = 0;           ///< 0: not measured

  /// A bound: computing takes no time and reads of both kinds overlap. 0 when nothing was measured.
  [[nodiscard]] double tokens_per_s() const noexcept;
  /// The same when a token takes so much from the model file.
  [[nodiscard]] double tokens_per_s(std::uint64_t home_bytes) const noexcept;
  /// Read from the model file for a token when this share of its experts is found in memory.
  [[nodiscard]] std::uint64_t home_bytes_at(double expert_hits) const noexcept;
};

/// Shares of experts found in memory that a plan is printed for; at the first everything is cold.
inline constexpr std::array<double, 7> planned_hit_rates{0, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99};

/// The bytes alone: without weights there is no file to measure. `memory_bytes_per_s` may be added.
[[nodiscard]] expected_rates count_token_bytes(runtime::requirements const& needs,
                                               runtime::plan const& memory);

/// The bytes, and the machine's rates measured now: a sum over main memory and reads of the model's
/// files.
/// Cost: a few tenths of a second.
[[nodiscard]] expected_rates measure_rates(format::catalog const& catalog, chain_plan const& plan);

/// Bytes per second at which that many threads read main memory. Cost: a few tenths of a second.
[[nodiscard]] double measure_memory_rate(int threads);

/// Some lines for people.
[[nodiscard]] std::string describe(expected_rates const& rates);

}  // namespace terrace::runner
