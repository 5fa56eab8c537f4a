// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/tier/device_lane.hpp>

#if defined(TERRACE_HAS_CUDA)

#include <terrace/concepts/copy_path.hpp>
#include <terrace/copy/detail/host_staging.hpp>
#include <terrace/core/ticket.hpp>
#include <terrace/tier/dram.hpp>
#include <terrace/tier/vram.hpp>

#include <cstddef>
#include <memory>

namespace terrace {

/// A device to pageable memory: the copy engine fills a bounded ring of pinned memory, the calling
/// thread empties it.
template <>
struct copy_path<vram, dram> {
  /// Errors: cuda_error from the ticket.
  static ticket start(
      vram& from, vram::handle source, dram& to, dram::handle at, std::size_t bytes) {
    auto& lane = from.lane();
    return lane.ring().start(std::make_unique<copy::detail::staged_to_host<>>(
        lane,
        to.address(at),
        from.address(source),
        copy::detail::copy_words{
            .from = vram::name, .to = dram::name, .bytes = bytes, .device = lane.device()}));
  }
};

static_assert(copyable_to<vram, dram>);

}  // namespace terrace

#endif
