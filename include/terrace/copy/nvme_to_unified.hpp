// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/tier/device_lane.hpp>

#if defined(TERRACE_HAS_CUDA)

#include <terrace/concepts/copy_path.hpp>
#include <terrace/copy/detail/home_staging.hpp>
#include <terrace/core/extent.hpp>
#include <terrace/core/ticket.hpp>
#include <terrace/tier/nvme.hpp>
#include <terrace/tier/unified.hpp>

#include <algorithm>
#include <cstdint>
#include <span>

namespace terrace {

/// Model file to managed memory: the block's pages are brought to where they will live, then direct
/// I/O into a bounded ring of pinned memory and the copy engine fill them.
template <>
struct copy_path<nvme, unified> {
  /// Reads the extents of one block to their places in it.
  /// Errors: from the ticket, as `nvme::read`, or cuda_error.
  static ticket start(nvme& home,
                      std::span<block_extent const> from,
                      unified& to,
                      unified::handle at) {
    std::uint64_t end = 0;
    for (auto const& part : from) { end = std::max(end, part.to_offset + part.from.bytes); }
    return copy::detail::start_or_refuse([&] {
      to.settle_pages(at, end);
      return copy::detail::copy_from_home(home, from, to.lane(), to.address(at), unified::name);
    });
  }
};

static_assert(copyable_to<nvme, unified>);

}  // namespace terrace

#endif
