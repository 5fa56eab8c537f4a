// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/tier/device_lane.hpp>
#include <terrace/tier/pmem.hpp>

#if defined(TERRACE_HAS_CUDA) && defined(TERRACE_HAS_PMEM2)

#include <terrace/concepts/copy_path.hpp>
#include <terrace/copy/detail/host_staging.hpp>
#include <terrace/core/ticket.hpp>
#include <terrace/tier/vram.hpp>

#include <cstddef>
#include <memory>

namespace terrace {

/// Persistent memory to a device: the calling thread fills a bounded ring of pinned memory, the
/// copy engine empties it.
template <>
struct copy_path<pmem, vram> {
  /// Errors: cuda_error from the ticket.
  static ticket start(
      pmem& from, pmem::handle source, vram& to, vram::handle at, std::size_t bytes) {
    auto& lane = to.lane();
    return lane.ring().start(std::make_unique<copy::detail::staged_from_host>(
        lane,
        from.address(source),
        to.address(at),
        copy::detail::copy_words{
            .from = pmem::name, .to = vram::name, .bytes = bytes, .device = lane.device()}));
  }
};

static_assert(copyable_to<pmem, vram>);

}  // namespace terrace

#endif
