// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/ids.hpp>

#include <cstdint>

namespace terrace {

/// A run of bytes of one model file.
struct extent {
  file_id file{};
  std::uint64_t offset = 0;  ///< bytes from the start of the file
  std::uint64_t bytes = 0;
  friend bool operator==(extent const&, extent const&) = default;
};

/// One extent and where its first byte goes inside the block's memory.
struct block_extent {
  extent from;
  std::uint64_t to_offset = 0;  ///< bytes from the start of the block
  friend bool operator==(block_extent const&, block_extent const&) = default;
};

}  // namespace terrace
