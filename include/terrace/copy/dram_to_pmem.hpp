// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/tier/pmem.hpp>

#if defined(TERRACE_HAS_PMEM2)

#include <terrace/concepts/copy_path.hpp>
#include <terrace/core/ticket.hpp>
#include <terrace/tier/dram.hpp>

#include <cstddef>

namespace terrace {

/// Main memory to persistent memory: stores past the cache by the calling thread; done when `start`
/// returns.
template <>
struct copy_path<dram, pmem> {
  static ticket start(
      dram& from, dram::handle source, pmem& to, pmem::handle at, std::size_t bytes) {
    to.store(to.address(at), from.address(source), bytes);
    return {};
  }
};

static_assert(copyable_to<dram, pmem>);

}  // namespace terrace

#endif
