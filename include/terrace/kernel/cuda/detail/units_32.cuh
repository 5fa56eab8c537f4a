// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/kernel/cuda/detail/unit.cuh>

#include <cstdint>

/// Units of the types whose scales lie beside 32 elements.
namespace terrace::kernel::cuda::detail {

/// Table entries that the eight nibbles of a word name, in the order of the nibbles, lowest first.
__device__ __forceinline__ void look_up_nibbles(std::uint32_t nibbles,
                                                std::uint32_t const (&table)[4],
                                                std::uint32_t& first,
                                                std::uint32_t& second) {
  std::uint32_t const index = nibbles & 0x7777'7777U;
  std::uint32_t const upper = ((nibbles >> 1U) & 0x4444'4444U) | 0x3210'3210U;
  first = __byte_perm(
      __byte_perm(table[0], table[1], index), __byte_perm(table[2], table[3], index), upper);
  second = __byte_perm(__byte_perm(table[0], table[1], index >> 16U),
                       __byte_perm(table[2], table[3], index >> 16U),
                       upper >> 16U);
}

/// Levels of a block of 16 bytes whose byte j holds elements j and j + 16.
__device__ __forceinline__ void split_levels(std::uint8_t const* bytes,
                                             std::uint32_t const (&table)[4],
                                             std::uint32_t (&codes)[8]) {
  std::uint32_t words[4];
  shift_words(bytes, words);
#pragma unroll
  for (unsigned w = 0; w < 4; ++w) {
    std::uint32_t first, second;
    look_up_nibbles(words[w], table, first, second);
    codes[w] = __byte_perm(first, second, 0x6420);
    codes[4 + w] = __byte_perm(first, second, 0x7531);
  }
}

template <>
struct units<quant_type::mxfp4> {
  using block = quant::mxfp4;
  using tables = no_tables;
  static constexpr bool affine = false;
  static constexpr int bias = 0;
  __device__ __forceinline__ static unit<1> load(block const& from, unsigned, tables const&) {
    constexpr std::uint32_t table[4] = {table_word(quant::e2m1_doubled),
                                        table_word(quant::e2m1_doubled + 4),
                                        table_word(quant::e2m1_doubled + 8),
                                        table_word(quant::e2m1_doubled + 12)};
    unit<1> to{{}, {e8m0_half_value(from.e)}, {}};
    split_levels(from.qs, table, to.codes);
    return to;
  }
};

template <>
struct units<quant_type::mxfp4_packed> {
  using block = quant::mxfp4_packed;
  using tables = no_tables;
  static constexpr bool affine = false;
  static constexpr int bias = 0;
  __device__ __forceinline__ static unit<1> load(block const& from, unsigned, tables const&) {
    constexpr std::uint32_t table[4] = {table_word(quant::e2m1_doubled),
                                        table_word(quant::e2m1_doubled + 4),
                                        table_word(quant::e2m1_doubled + 8),
                                        table_word(quant::e2m1_doubled + 12)};
    unit<1> to{{}, {0.5F}, {}};
    std::uint32_t words[4];
    shift_words(from.qs, words);
#pragma unroll
    for (unsigned w = 0; w < 4; ++w) {
      look_up_nibbles(words[w], table, to.codes[2 * w], to.codes[2 * w + 1]);
    }
    return to;
  }
};

template <>
struct units<quant_type::int4_g32> {
  using block = quant::int4_g32;
  using tables = no_tables;
  static constexpr bool affine = false;
  static constexpr int bias = -8;
  __device__ __forceinline__ static unit<1> load(block const& from, unsigned, tables const&) {
    unit<1> to{{}, {1.0F}, {}};
    std::uint32_t words[4];
    shift_words(from.qs, words);
#pragma unroll
    for (unsigned w = 0; w < 4; ++w) {
      std::uint32_t const even = words[w] & low_nibbles;
      std::uint32_t const odd = (words[w] >> 4U) & low_nibbles;
      to.codes[2 * w] = __byte_perm(even, odd, 0x5140);
      to.codes[2 * w + 1] = __byte_perm(even, odd, 0x7362);
    }
    return to;
  }
};

template <>
struct units<quant_type::q4_0> {
  using block = quant::q4_0;
  using tables = no_tables;
  static constexpr bool affine = false;
  static constexpr int bias = -8;
  __device__ __forceinline__ static unit<1> load(block const& from, unsigned, tables const&) {
    unit<1> to{{}, {load_half(from.d)}, {}};
    std::uint32_t words[4];
    shift_words(from.qs, words);
#pragma unroll
    for (unsigned w = 0; w < 4; ++w) {
      to.codes[w] = words[w] & low_nibbles;
      to.codes[4 + w] = (words[w] >> 4U) & low_nibbles;
    }
    return to;
  }
};

template <>
struct units<quant_type::iq4_nl> {
  using block = quant::iq4_nl;
  using tables = no_tables;
  static constexpr bool affine = false;
  static constexpr int bias = 0;
  __device__ __forceinline__ static unit<1> load(block const& from, unsigned, tables const&) {
    constexpr std::uint32_t table[4] = {table_word(quant::iq4_levels),
                                        table_word(quant::iq4_levels + 4),
                                        table_word(quant::iq4_levels + 8),
                                        table_word(quant::iq4_levels + 12)};
    unit<1> to{{}, {load_half(from.d)}, {}};
    split_levels(from.qs, table, to.codes);
    return to;
  }
};

template <>
struct units<quant_type::q8_0> {
  using block = quant::q8_0;
  using tables = no_tables;
  static constexpr bool affine = false;
  static constexpr int bias = 0;
  __device__ __forceinline__ static unit<1> load(block const& from, unsigned, tables const&) {
    unit<1> to{{}, {load_half(from.d)}, {}};
    shift_words(from.qs, to.codes);
    return to;
  }
};

}  // namespace terrace::kernel::cuda::detail
