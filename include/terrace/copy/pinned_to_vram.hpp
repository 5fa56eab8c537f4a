// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/tier/device_lane.hpp>

#if defined(TERRACE_HAS_CUDA)

#include <terrace/concepts/copy_path.hpp>
#include <terrace/copy/detail/lane_copies.hpp>
#include <terrace/core/ticket.hpp>
#include <terrace/tier/pinned.hpp>
#include <terrace/tier/vram.hpp>

#include <cstddef>

namespace terrace {

/// Pinned memory to a device, by its copy engine.
template <>
struct copy_path<pinned, vram> {
  /// Errors: cuda_error from the ticket.
  static ticket start(
      pinned& from, pinned::handle source, vram& to, vram::handle at, std::size_t bytes) {
    auto& lane = to.lane();
    return copy::detail::copy_on(
        lane,
        lane.up(),
        to.address(at),
        from.address(source),
        {.from = pinned::name, .to = vram::name, .bytes = bytes, .device = lane.device()});
  }
};

static_assert(copyable_to<pinned, vram>);

}  // namespace terrace

#endif
