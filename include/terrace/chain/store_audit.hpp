// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

namespace terrace {

/// What a store counts, beside what its tiers count. `holds()` is the byte identity: every byte a
/// tier says is used belongs to a block or to sequence state, and nothing is counted twice without
/// being declared a copy.
struct store_audit {
  struct level_bytes {
    std::uint64_t tier_used = 0;  ///< what the tier says
    std::uint64_t blocks = 0;     ///< blocks here or arriving
    std::uint64_t state = 0;      ///< sequence state
  };
  std::vector<level_bytes> levels;
  std::uint64_t distinct = 0;  ///< bytes of blocks in at least one level, counted once
  std::uint64_t copies = 0;    ///< bytes of the same blocks in further levels
  std::uint64_t broken_exclusions =
      0;  ///< blocks at rest in an exclusive level and in the one above it

  [[nodiscard]] bool holds() const noexcept {
    std::uint64_t sum = 0;
    for (auto const& one : levels) {
      if (one.tier_used != one.blocks + one.state) { return false; }
      sum += one.blocks;
    }
    return sum == copies + distinct && broken_exclusions == 0;
  }
};

}  // namespace terrace
