// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/extent.hpp>
#include <terrace/core/ids.hpp>
#include <terrace/core/quant_type.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace terrace {

/// How the scales that live outside the element data are laid out over a matrix.
enum class scale_grid : std::uint8_t {
  none,          ///< the encoding carries its scales (every GGUF block type), or has none
  per_tensor,    ///< one value
  per_row,       ///< [rows]
  per_block128,  ///< [ceil(rows/128), ceil(cols/128)], row-major
  per_group32,   ///< [rows, cols/32], row-major
};

/// One matrix (or vector: rows == 1) inside a block's memory. y = W x reads `cols` inputs and
/// writes `rows` outputs; rows are contiguous, `row_bytes(type, cols)` each. A third dimension is
/// folded into `rows` (slowest first).
struct matrix_layout {
  quant_type type = quant_type::f32;
  std::uint64_t rows = 0;
  std::uint64_t cols = 0;
  std::uint64_t data_offset = 0;  ///< bytes from the start of the block
  scale_grid grid = scale_grid::none;
  quant_type scale_type = quant_type::f32;  ///< f32, bf16, f16; i8 stands for E8M0 bytes
  std::uint64_t scale_offset =
      0;                    ///< bytes from the start of the block; meaningless when grid is none
  float multiplier = 1.0F;  ///< factor on every decoded value (NVFP4 `.scale` tensors)

  [[nodiscard]] std::uint64_t data_bytes() const noexcept { return rows * row_bytes(type, cols); }
};

/// The same matrix once its block has an address. Trivially copyable; borrows the block's memory.
struct matrix_view {
  quant_type type = quant_type::f32;
  std::uint64_t rows = 0;
  std::uint64_t cols = 0;
  std::byte const* data = nullptr;
  scale_grid grid = scale_grid::none;
  quant_type scale_type = quant_type::f32;
  std::byte const* scales = nullptr;
  float multiplier = 1.0F;

  /// Rows [first, first + count) of this matrix; for per-block scales `first` must be a multiple of
  /// 128.
  [[nodiscard]] matrix_view rows_from(std::uint64_t first, std::uint64_t count) const noexcept {
    matrix_view part = *this;
    part.rows = count;
    part.data = data + first * row_bytes(type, cols);
    if (scales != nullptr) {
      std::uint64_t const width = traits_of(scale_type).block_bytes;
      if (grid == scale_grid::per_row) { part.scales = scales + first * width; }
      if (grid == scale_grid::per_group32) { part.scales = scales + first * (cols / 32) * width; }
      if (grid == scale_grid::per_block128) {
        part.scales = scales + first / 128 * ((cols + 127) / 128) * width;
      }
    }
    return part;
  }
};

[[nodiscard]] inline matrix_view view_at(matrix_layout const& layout,
                                         std::byte const* block) noexcept {
  return {.type = layout.type,
          .rows = layout.rows,
          .cols = layout.cols,
          .data = block + layout.data_offset,
          .grid = layout.grid,
          .scale_type = layout.scale_type,
          .scales = layout.grid == scale_grid::none ? nullptr : block + layout.scale_offset,
          .multiplier = layout.multiplier};
}

/// What a block is made of: where its bytes come from and which matrices they form.
/// An expert has three matrices in the order gate, up, down. A dense block has one.
struct block_info {
  block_id id{};
  std::vector<std::string>
      names;  ///< GGUF-style tensor names, one per matrix ("blk.3.ffn_gate_exps.weight")
  std::uint64_t bytes = 0;  ///< bytes of memory the block occupies in a tier (extents plus padding)
  std::vector<block_extent>
      extents;  ///< disjoint in memory and inside their files; adjacent file runs are merged
  std::vector<matrix_layout> matrices;

  [[nodiscard]] std::uint64_t file_bytes() const noexcept {
    std::uint64_t sum = 0;
    for (auto const& piece : extents) { sum += piece.from.bytes; }
    return sum;
  }
};

}  // namespace terrace
