// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/tier/pmem.hpp>

#if defined(TERRACE_HAS_PMEM2)

#include <terrace/concepts/copy_path.hpp>
#include <terrace/core/ticket.hpp>
#include <terrace/tier/dram.hpp>

#include <cstddef>
#include <cstring>

namespace terrace {

/// Persistent memory to main memory: a copy by the calling thread; done when `start` returns.
template <>
struct copy_path<pmem, dram> {
  static ticket start(
      pmem& from, pmem::handle source, dram& to, dram::handle at, std::size_t bytes) {
    if (bytes != 0) { std::memcpy(to.address(at), from.address(source), bytes); }
    return {};
  }
};

static_assert(copyable_to<pmem, dram>);

}  // namespace terrace

#endif
