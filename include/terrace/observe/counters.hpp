// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace terrace::observe {

/// What happened at one level of a chain since its store was made. Bytes are as held in the tier,
/// padding included.
struct tier_counters {
  std::string name;  ///< "dram", "pmem", "nvme"
  std::string mode;  ///< how the tier works here, in words; says "emulated" when it is
  std::uint64_t capacity_bytes = 0;  ///< 0 for a home
  std::uint64_t used_bytes = 0;
  std::uint64_t peak_bytes = 0;
  std::uint64_t hits = 0;    ///< blocks asked of this level that were there
  std::uint64_t misses = 0;  ///< blocks asked of this level that were not
  std::uint64_t bytes_in = 0;
  std::uint64_t bytes_out = 0;
  std::uint64_t evictions = 0;
  std::uint64_t prefetched = 0;     ///< blocks brought in before they were asked for
  std::uint64_t prefetch_used = 0;  ///< of those, blocks that were asked for while still here
  std::uint64_t stall_ns = 0;       ///< time the pipeline waited for bytes from this level

  /// Share of the asked blocks that were found, 0 to 1; 0 when nothing was asked.
  [[nodiscard]] double hit_rate() const noexcept {
    std::uint64_t const asked = hits + misses;
    return asked == 0 ? 0.0 : static_cast<double>(hits) / static_cast<double>(asked);
  }
  [[nodiscard]] double stall_s() const noexcept { return static_cast<double>(stall_ns) * 1e-9; }
};

}  // namespace terrace::observe
