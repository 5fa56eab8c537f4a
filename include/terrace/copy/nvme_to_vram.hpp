// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/tier/device_lane.hpp>

#if defined(TERRACE_HAS_CUDA)

#include <terrace/concepts/copy_path.hpp>
#include <terrace/copy/detail/home_staging.hpp>
#include <terrace/core/extent.hpp>
#include <terrace/core/ticket.hpp>
#include <terrace/tier/nvme.hpp>
#include <terrace/tier/vram.hpp>

#include <span>

namespace terrace {

/// Model file to a device: direct I/O into a bounded ring of pinned memory, then the copy engine,
/// both at once.
template <>
struct copy_path<nvme, vram> {
  /// Reads the extents of one block to their places in it.
  /// Errors: from the ticket, as `nvme::read`, or cuda_error.
  static ticket start(nvme& home, std::span<block_extent const> from, vram& to, vram::handle at) {
    return copy::detail::copy_from_home(home, from, to.lane(), to.address(at), vram::name);
  }
};

static_assert(copyable_to<nvme, vram>);

}  // namespace terrace

#endif
