// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/kernel/cpu/detail/f32x16.hpp>
#include <terrace/kernel/cpu/detail/int8_rows.hpp>
#include <terrace/kernel/cpu/detail/unpack.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

/// Products of four rows of weights with 8-bit vectors, in the one order that all tilings share:
///
///   for each block b, ascending:  acc[b % 4] = fma(isum, scale * xscale, acc[b % 4])   (low half,
///   then high half)
///                                 acc[b % 4] = fma(minimum, xsum, acc[b % 4])
///   y = ((acc[0] + acc[1]) + acc[2]) + acc[3]
///
/// where isum is the exact integer sum of (code - offset) * xcode over the block (or half block).
namespace terrace::kernel::cpu::detail {

/// Columns unpacked at a time when few vectors are multiplied: four rows of codes and factors stay
/// in the first cache.
inline constexpr std::size_t piece_blocks = 32;

/// Four rows of codes and factors. `pitch` is the distance of rows of codes in bytes.
struct unpacked_rows {
  std::uint8_t* codes;
  std::size_t pitch;
  float* scale;       ///< [blocks, tile_rows]
  float* high_scale;  ///< [blocks, tile_rows]
  float* minimum;     ///< [blocks, tile_rows]
};

/// Unpacks blocks [first, first + count) of rows [row, row + tile_rows) of `w` to the start of
/// `to`; rows past the last repeat it. `first` and `count` are whole encoded blocks.
template <class Unpacker>
void unpack_rows(matrix_view const& w,
                 std::size_t row,
                 std::size_t first,
                 std::size_t count,
                 unpacked_rows to) noexcept {
  using block = typename Unpacker::block;
  constexpr std::size_t step = block::elements / block_cols;
  std::uint64_t const bytes = row_bytes(w.type, w.cols);
  for (std::size_t r = 0; r < tile_rows; ++r) {
    std::size_t const source = std::min<std::size_t>(row + r, w.rows - 1);
    std::byte const* from = w.data + source * bytes + first / step * sizeof(block);
    for (std::size_t b = 0; b < count; b += step, from += sizeof(block)) {
      block copy;
      std::memcpy(&copy, from, sizeof copy);
      std::size_t const factor = tile_rows * b + r;
      Unpacker::unpack(copy,
                       {to.codes + r * to.pitch + b * block_cols,
                        to.scale + factor,
                        to.high_scale + factor,
                        to.minimum + factor});
    }
    if constexpr (Unpacker::outer_scales) {
      std::byte const* const scales =
          w.scales + (source * (w.cols / block_cols)) * traits_of(w.scale_type).block_bytes;
      for (std::size_t b = 0; b < count; ++b) {
        to.scale[tile_rows * b + r] = outer_scale(w.scale_type, scales, first + b);
      }
    }
  }
}

/// One vector's part of `int8_rows`, from some block on.
struct int8_row {
  std::int8_t const* codes;
  float const* scale;
  float const* sum;
  std::int32_t const* low_sum;
  std::int32_t const* high_sum;
};
[[nodiscard]] inline int8_row row_of(int8_rows const& rows,
                                     std::size_t token,
                                     std::size_t block) noexcept {
  std::size_t const at = token * rows.blocks_pitch + block;
  return {rows.codes.data() + at * block_cols,
          rows.scale.data() + at,
          rows.sum.data() + at,
          rows.low_sum.data() + at,
          rows.high_sum.data() + at};
}

/// Adds `count` blocks, the first of which is number 0 modulo 4, to acc: [4 partial sums, 4 rows].
template <class Unpacker>
[[gnu::noinline]] void multiply_add_rows(unpacked_rows const& w,
                                         int8_row const& x,
                                         std::size_t count,
                                         float* acc) noexcept {
  constexpr std::int32_t offset = Unpacker::offset_shift < 0 ? 0 : 1 << Unpacker::offset_shift;
  for (std::size_t b = 0; b < count; ++b) {
    for (std::size_t r = 0; r < tile_rows; ++r) {
      std::uint8_t const* const code = w.codes + r * w.pitch + b * block_cols;
      std::int8_t const* const other = x.codes + b * block_cols;
      std::int32_t low = -offset * x.low_sum[b];
      std::int32_t high = -offset * x.high_sum[b];
      for (std::size_t i = 0; i < block_cols / 2; ++i) { low += code[i] * other[i]; }
      for (std::size_t i = block_cols / 2; i < block_cols; ++i) { high += code[i] * other[i]; }
      std::size_t const factor = tile_rows * b + r;
      float& sum = acc[(b % block_lanes) * tile_rows + r];
      if constexpr (Unpacker::halves) {
        sum = multiply_add(static_cast<float>(low), w.scale[factor] * x.scale[b], sum);
        sum = multiply_add(static_cast<float>(high), w.high_scale[factor] * x.scale[b], sum);
      } else {
        sum = multiply_add(static_cast<float>(low + high), w.scale[factor] * x.scale[b], sum);
      }
      if constexpr (Unpacker::minimum) { sum = multiply_add(w.minimum[factor], x.sum[b], sum); }
    }
  }
}

}  // namespace terrace::kernel::cpu::detail
