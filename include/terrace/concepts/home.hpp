// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/extent.hpp>
#include <terrace/core/ticket.hpp>

#include <concepts>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace terrace {

/// Read `from.bytes` bytes at `from` into host memory at `to`.
struct file_read {
  extent from;
  std::byte* to = nullptr;
};

/// The last level of a chain: holds every block, is never written, allocates nothing and evicts
/// nothing.
///
/// `read` starts all reads of one set together and returns at once; they may finish in any order;
/// the memory belongs to the home until the ticket ends. A failed or short read is an io_error from
/// `ticket::wait` naming file and offset. `mode` says in words how the bytes travel ("io_uring,
/// direct, registered buffers").
template <class H>
concept home_tier =
    std::movable<H> && requires(H& home, H const& view, std::span<file_read const> work) {
      { H::name } -> std::convertible_to<std::string_view>;
      { home.read(work) } -> std::same_as<ticket>;
      { view.mode() } -> std::convertible_to<std::string>;
      {
        view.staging_bytes()
      } noexcept -> std::same_as<std::size_t>;  // host memory held for bouncing
    };

}  // namespace terrace
