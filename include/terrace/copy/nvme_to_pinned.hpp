// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/tier/device_lane.hpp>

#if defined(TERRACE_HAS_CUDA)

#include <terrace/concepts/copy_path.hpp>
#include <terrace/core/extent.hpp>
#include <terrace/core/ticket.hpp>
#include <terrace/tier/nvme.hpp>
#include <terrace/tier/pinned.hpp>

#include <span>
#include <vector>

namespace terrace {

/// Model file to pinned memory: direct I/O into the block itself, with bounced edges.
template <>
struct copy_path<nvme, pinned> {
  /// Reads the extents of one block to their places in it. Errors as `nvme::read`.
  static ticket start(nvme& home,
                      std::span<block_extent const> from,
                      pinned& to,
                      pinned::handle at) {
    std::vector<file_read> work;
    work.reserve(from.size());
    for (auto const& part : from) { work.push_back({part.from, to.address(at) + part.to_offset}); }
    return home.read(work);
  }
};

static_assert(copyable_to<nvme, pinned>);

}  // namespace terrace

#endif
