// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/error.hpp>
#include <terrace/shim/file.hpp>

#include <cerrno>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#if defined(TERRACE_HAS_NUMA)
#include <numa.h>
#include <numaif.h>
#endif

namespace terrace::shim {

/// Checks that memory can be placed on NUMA node `node`.
/// Errors: not_supported without libnuma or kernel support; contract_error for a node this machine does not have.
inline void require_numa_node([[maybe_unused]] int node) {
#if defined(TERRACE_HAS_NUMA)
  if (::numa_available() < 0) {
    throw not_supported{"numa_node " + std::to_string(node) +
                        ": this kernel has no NUMA support; leave the option out"};
  }
  if (node < 0 || node > ::numa_max_node() ||
      numa_bitmask_isbitset(::numa_all_nodes_ptr, node) == 0) {
    throw contract_error{"numa_node " + std::to_string(node) +
                         " is not on this machine, whose nodes are 0 to " +
                         std::to_string(::numa_max_node())};
  }
#else
  throw not_supported{
      "numa_node " + std::to_string(node) +
      ": this build has no libnuma; install it and configure again, or leave the option out"};
#endif
}

/// Prefers `node` for pages of `range` that are not touched yet. A preference and not a binding: a
/// full node then means slower memory instead of a killed process.
/// Errors: io_error when the kernel refuses.
inline void prefer_numa_node([[maybe_unused]] std::span<std::byte> range,
                             [[maybe_unused]] int node) {
#if defined(TERRACE_HAS_NUMA)
  constexpr std::size_t bits = 8 * sizeof(unsigned long);
  std::vector<unsigned long> mask(static_cast<std::size_t>(node) / bits + 1);
  mask.back() = 1UL << (static_cast<std::size_t>(node) % bits);
  // The kernel reads one bit less than it is told.
  if (::mbind(range.data(), range.size(), MPOL_PREFERRED, mask.data(), mask.size() * bits + 1, 0) !=
      0) {
    int const code = errno;
    throw io_error{"placing memory on NUMA node " + std::to_string(node) +
                       " failed: " + errno_text(code) + "; leave numa_node out",
                   code};
  }
#endif
}

}  // namespace terrace::shim
