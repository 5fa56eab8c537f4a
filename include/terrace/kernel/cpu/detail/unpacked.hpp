// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/quant_type.hpp>

#include <cstddef>
#include <cstdint>

/// The weight types with an integer product, brought to one form: unsigned codes in element order
/// and, for every 32 elements, float factors, such that  w = scale * (code - offset) + minimum.
namespace terrace::kernel::cpu::detail {

/// Where a run of encoded blocks of one row goes.
struct unpacked_run {
  std::uint8_t* codes;  ///< 32 for each block
  float* scale;         ///< one a block; of its first 16 elements when the type has two
  float* high_scale;    ///< of the last 16 elements; only for types with `halves`
  float* minimum;       ///< one a block; only for types with `minimum`
};

/// Where a run of encoded blocks comes from.
struct encoded_run {
  std::byte const* blocks;
  std::size_t count;
  std::byte const* scales;  ///< one a block, for types with `outer_scales`
  quant_type scale_type;

  template <class Block>
  [[nodiscard]] Block const* as() const noexcept {
    return reinterpret_cast<Block const*>(
        blocks);  // bytes in and out: alignment 1, trivially copyable
  }
};

/// Properties shared by the unpackers; each overrides what differs.
struct unpacker {
  static constexpr int offset_shift = -1;  ///< offset is 2^offset_shift; -1 means none
  static constexpr bool minimum = false;
  static constexpr bool halves = false;        ///< two scales for 32 elements
  static constexpr bool outer_scales = false;  ///< scales lie in another tensor
};

/// Blocks of 32 elements whose codes and factors are unpacked together: as many as a vector has
/// lanes.
inline constexpr std::size_t group_blocks = 16;

/// Calls unpack(first, count) for groups of at most `group_blocks` blocks.
template <class Unpack>
void for_each_group(std::size_t blocks, Unpack&& unpack) noexcept {
  std::size_t b = 0;
  for (; b + group_blocks <= blocks; b += group_blocks) { unpack(b, group_blocks); }
  if (b < blocks) { unpack(b, blocks - b); }
}

}  // namespace terrace::kernel::cpu::detail
