// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/units.hpp>

#include <array>
#include <cstddef>
#include <string_view>

namespace terrace::runner {

/// Whose memory a tier is.
enum class tier_memory : unsigned char { device, main, persistent, file };

/// A tier as chains and options name it.
struct tier_entry {
  std::string_view name;
  tier_memory memory = tier_memory::main;
  bool host_reads = true;
  bool device_reads = false;
  std::string_view component;  ///< that a build needs for it; empty: none
  bool built = true;
};

#if defined(TERRACE_HAS_CUDA)
inline constexpr bool has_cuda = true;
#else
inline constexpr bool has_cuda = false;
#endif
#if defined(TERRACE_HAS_PMEM2)
inline constexpr bool has_pmem = true;
#else
inline constexpr bool has_pmem = false;
#endif

inline constexpr std::array<tier_entry, 6> tier_table{{
    {"vram", tier_memory::device, false, true, "CUDA", has_cuda},
    {"unified", tier_memory::device, true, true, "CUDA", has_cuda},
    {"pinned", tier_memory::main, true, true, "CUDA", has_cuda},
    {"dram", tier_memory::main, true, false, "", true},
    {"pmem", tier_memory::persistent, true, false, "libpmem2", has_pmem},
    {"nvme", tier_memory::file, false, false, "", true},
}};

/// Main memory between a device and what its copy engine does not read, for each tier that is a
/// device's.
struct device_staging {
  std::size_t bytes = 16 * mib;
  std::size_t slot_bytes = mib;
};

}  // namespace terrace::runner
