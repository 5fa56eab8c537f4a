// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/tier/pmem.hpp>

#if defined(TERRACE_HAS_PMEM2)

#include <terrace/concepts/copy_path.hpp>
#include <terrace/core/extent.hpp>
#include <terrace/core/ticket.hpp>
#include <terrace/tier/nvme.hpp>

#include <cstddef>
#include <span>
#include <vector>

namespace terrace {

/// Model file to persistent memory: direct I/O into staging memory, then stores past the cache,
/// piece by piece.
template <>
struct copy_path<nvme, pmem> {
  /// Reads the extents of one block to their places in it. Errors as `nvme::read`.
  static ticket start(nvme& home, std::span<block_extent const> from, pmem& to, pmem::handle at) {
    std::vector<file_read> work;
    work.reserve(from.size());
    for (auto const& part : from) { work.push_back({part.from, to.address(at) + part.to_offset}); }
    auto const store =
        [](void* mapping, std::byte* where, std::byte const* bytes, std::size_t count) noexcept {
          auto const& memory = *static_cast<shim::pmem_mapping const*>(mapping);
          memory.copy(where, bytes, count);
          memory.drain();  // on the thread that stored
        };
    return home.read_through(work, {store, &to.mapping()});
  }
};

static_assert(copyable_to<nvme, pmem>);

}  // namespace terrace

#endif
