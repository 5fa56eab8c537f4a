// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/quant_type.hpp>
#include <terrace/kernel/cuda/detail/unaligned.cuh>

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

namespace terrace::kernel::cuda::detail {

/// Elements that are unpacked together. Every encoded block is a whole number of octets, and no
/// scale ends inside one.
inline constexpr unsigned octet_elements = 8;

/// Eight consecutive elements of a row: element i is scale * code + offset, the code being byte i %
/// 4, signed, of word i / 4.
struct octet {
  std::uint32_t codes[2];
  float scale;
  float offset;  ///< 0 for types that have none
};

/// How blocks of one type give octets; specialised for each type in the headers beside this one.
///
///   using block          the layout of quant/
///   affine               whether offsets differ from 0
///   load(block, i)       octet i of a block at any address
template <quant_type Type>
struct octets;

/// Adds `value` to each signed byte; the sums must not leave the range of a byte.
__device__ __forceinline__ std::uint32_t add_to_bytes(std::uint32_t bytes, int value) {
  return __vadd4(bytes, 0x01010101U * static_cast<std::uint32_t>(value & 0xFF));
}

/// Byte b of the result is table byte number (byte b of `index`), which is below 16.
__device__ __forceinline__ std::uint32_t look_up(std::uint32_t index,
                                                 std::uint32_t const (&table)[4]) {
  std::uint32_t const pairs = index | (index >> 4U);
  std::uint32_t const selector = (pairs & 0xFFU) | ((pairs >> 8U) & 0xFF00U);
  std::uint32_t const low = __byte_perm(table[0], table[1], selector & 0x7777U);
  std::uint32_t const high = __byte_perm(table[2], table[3], selector & 0x7777U);
  std::uint32_t const upper = ((index >> 3U) & 0x01010101U) * 0xFFU;
  return (high & upper) | (low & ~upper);
}

/// The value of element i.
template <bool Affine>
__device__ __forceinline__ float value_of(octet const& from, unsigned i) {
  auto const code = static_cast<float>(
      static_cast<int>(static_cast<std::int8_t>(from.codes[i / 4] >> (8U * (i % 4)))));
  return Affine ? fmaf(from.scale, code, from.offset) : __fmul_rn(from.scale, code);
}

}  // namespace terrace::kernel::cuda::detail
