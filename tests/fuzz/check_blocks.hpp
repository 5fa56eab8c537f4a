// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/block.hpp>
#include <terrace/core/quant_type.hpp>
#include <terrace/format/detail/block_list.hpp>

#include <cstdint>
#include <cstdlib>

namespace fuzz {

inline void require(bool condition) {
  if (!condition) { std::abort(); }
}

/// Whatever the file said, reading its blocks stays inside the file and inside the blocks.
inline void check_blocks(terrace::format::detail::block_list const& list,
                         std::uint64_t file_bytes) {
  for (terrace::block_info const& block : list.blocks()) {
    require(list.find(block.id) == &block && block.names.size() == block.matrices.size());
    std::uint64_t end = 0;
    for (auto const& piece : block.extents) {
      require(piece.from.offset <= file_bytes &&
              piece.from.bytes <= file_bytes - piece.from.offset);
      require(piece.to_offset >= end && piece.from.bytes > 0);
      end = piece.to_offset + piece.from.bytes;
    }
    require(end <= block.bytes);
    for (auto const& matrix : block.matrices) {
      require(matrix.rows > 0 && matrix.cols > 0 && matrix.data_bytes() > 0);
      require(matrix.data_offset <= end && matrix.data_bytes() <= end - matrix.data_offset);
      require(matrix.grid == terrace::scale_grid::none || matrix.scale_offset < end);
    }
  }
}

}  // namespace fuzz
