// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/stream_ref.hpp>

#include <cstddef>
#include <cstdint>

namespace terrace::bench {

/// Part of each of `count` experts' blocks.
struct block_parts {
  std::byte const* const* blocks;  ///< [count], on the device
  std::size_t count;
  std::size_t from;   ///< whole 16 bytes
  std::size_t bytes;  ///< whole 16 bytes
};

/// Reads the parts and does nothing else: the time that any kernel over them needs. Enqueues on
/// `on`; `sink` is one word of device memory.
void plain_read(stream_ref on, block_parts const& what, std::uint32_t* sink);

}  // namespace terrace::bench
