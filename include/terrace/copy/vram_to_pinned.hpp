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

/// A device to pinned memory, by its copy engine.
template <>
struct copy_path<vram, pinned> {
  /// Errors: cuda_error from the ticket.
  static ticket start(
      vram& from, vram::handle source, pinned& to, pinned::handle at, std::size_t bytes) {
    auto& lane = from.lane();
    return copy::detail::copy_on(
        lane,
        lane.down(),
        to.address(at),
        from.address(source),
        {.from = vram::name, .to = pinned::name, .bytes = bytes, .device = lane.device()});
  }
};

static_assert(copyable_to<vram, pinned>);

}  // namespace terrace

#endif
