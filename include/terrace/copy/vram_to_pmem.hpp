// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/tier/device_lane.hpp>
#include <terrace/tier/pmem.hpp>

#if defined(TERRACE_HAS_CUDA) && defined(TERRACE_HAS_PMEM2)

#include <terrace/concepts/copy_path.hpp>
#include <terrace/copy/detail/host_staging.hpp>
#include <terrace/core/ticket.hpp>
#include <terrace/shim/libpmem2.hpp>
#include <terrace/tier/vram.hpp>

#include <cstddef>
#include <memory>

namespace terrace {

/// A device to persistent memory: the copy engine fills a bounded ring of pinned memory, the
/// calling thread empties it by stores past the cache.
template <>
struct copy_path<vram, pmem> {
  /// Errors: cuda_error from the ticket.
  static ticket start(
      vram& from, vram::handle source, pmem& to, pmem::handle at, std::size_t bytes) {
    auto& lane = from.lane();
    auto const store = [&memory = to.mapping()](
                           std::byte* where, std::byte const* staged, std::size_t count) {
      memory.copy(where, staged, count);
      memory.drain();
    };
    return lane.ring().start(std::make_unique<copy::detail::staged_to_host<decltype(store)>>(
        lane,
        to.address(at),
        from.address(source),
        copy::detail::copy_words{
            .from = vram::name, .to = pmem::name, .bytes = bytes, .device = lane.device()},
        store));
  }
};

static_assert(copyable_to<vram, pmem>);

}  // namespace terrace

#endif
