// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace terrace::observe {

/// What one tier held and moved since its store was made. Whoever acts counts; nothing here is
/// synchronised.
struct tier_counters {
  std::string name;  ///< "dram"
  std::string mode;  ///< how bytes travel or lie, in words ("io_uring, direct"); may be empty
  std::uint64_t capacity_bytes = 0;  ///< 0 for a home, which has no cap
  std::uint64_t used_bytes = 0;      ///< held now
  std::uint64_t peak_bytes = 0;      ///< most ever held at one instant
  std::uint64_t hits = 0;            ///< blocks asked for and found here
  std::uint64_t misses = 0;          ///< blocks asked for and not found here
  std::uint64_t bytes_in = 0;        ///< copied into this tier
  std::uint64_t bytes_out = 0;       ///< copied out of this tier, to a faster one
  std::uint64_t evictions = 0;       ///< blocks dropped to make room
  std::uint64_t prefetched = 0;      ///< blocks brought in before anybody asked
  std::uint64_t prefetch_hits = 0;   ///< of those, asked for before they left
  std::uint64_t stall_ns =
      0;  ///< nanoseconds the pipeline waited for bytes on their way into this tier

  /// Records that the tier holds `bytes` now.
  void holds(std::uint64_t bytes) noexcept {
    used_bytes = bytes;
    if (bytes > peak_bytes) { peak_bytes = bytes; }
  }
  /// Share of the asked blocks that were found, 0 to 1; 0 when nothing was asked.
  [[nodiscard]] double hit_rate() const noexcept {
    std::uint64_t const asked = hits + misses;
    return asked == 0 ? 0.0 : static_cast<double>(hits) / static_cast<double>(asked);
  }
  [[nodiscard]] double stall_s() const noexcept { return static_cast<double>(stall_ns) * 1e-9; }
};

}  // namespace terrace::observe
