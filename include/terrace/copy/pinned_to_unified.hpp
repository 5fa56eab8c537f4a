// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/tier/device_lane.hpp>

#if defined(TERRACE_HAS_CUDA)

#include <terrace/concepts/copy_path.hpp>
#include <terrace/copy/detail/lane_copies.hpp>
#include <terrace/core/ticket.hpp>
#include <terrace/tier/pinned.hpp>
#include <terrace/tier/unified.hpp>

#include <cstddef>

namespace terrace {

/// Pinned memory to managed memory: the pages are brought to where they will live, then the copy
/// engine fills them.
template <>
struct copy_path<pinned, unified> {
  /// Errors: cuda_error from the ticket.
  static ticket start(
      pinned& from, pinned::handle source, unified& to, unified::handle at, std::size_t bytes) {
    auto& lane = to.lane();
    return copy::detail::start_or_refuse([&] {
      to.settle_pages(at, bytes);
      return copy::detail::copy_on(
          lane,
          lane.up(),
          to.address(at),
          from.address(source),
          {.from = pinned::name, .to = unified::name, .bytes = bytes, .device = lane.device()});
    });
  }
};

static_assert(copyable_to<pinned, unified>);

}  // namespace terrace

#endif
