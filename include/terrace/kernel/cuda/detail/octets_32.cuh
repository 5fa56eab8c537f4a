// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/kernel/cuda/detail/octet.cuh>
#include <terrace/kernel/cuda/detail/small_floats.cuh>
#include <terrace/quant/int4_g32.hpp>
#include <terrace/quant/iq4_nl.hpp>
#include <terrace/quant/mxfp4.hpp>
#include <terrace/quant/mxfp4_packed.hpp>
#include <terrace/quant/nvfp4.hpp>
#include <terrace/quant/q4_0.hpp>
#include <terrace/quant/q4_1.hpp>
#include <terrace/quant/q5_0.hpp>
#include <terrace/quant/q5_1.hpp>
#include <terrace/quant/q8_0.hpp>
#include <terrace/quant/q8_1.hpp>

#include <cstdint>

/// Octets of the types whose scales lie beside 16 or 32 elements.
namespace terrace::kernel::cuda::detail {

inline constexpr std::uint32_t low_nibbles = 0x0F0F'0F0FU;

/// Four bytes of a table for `look_up`.
[[nodiscard]] __host__ __device__ constexpr std::uint32_t table_word(std::int8_t const* levels) {
  std::uint32_t word = 0;
  for (unsigned i = 0; i < 4; ++i) {
    word |= static_cast<std::uint32_t>(static_cast<std::uint8_t>(levels[i])) << (8U * i);
  }
  return word;
}
__device__ __forceinline__ std::uint32_t iq4_level(std::uint32_t index) {
  constexpr std::uint32_t table[4] = {table_word(quant::iq4_levels),
                                      table_word(quant::iq4_levels + 4),
                                      table_word(quant::iq4_levels + 8),
                                      table_word(quant::iq4_levels + 12)};
  return look_up(index, table);
}
__device__ __forceinline__ std::uint32_t e2m1_level(std::uint32_t index) {
  constexpr std::uint32_t table[4] = {table_word(quant::e2m1_doubled),
                                      table_word(quant::e2m1_doubled + 4),
                                      table_word(quant::e2m1_doubled + 8),
                                      table_word(quant::e2m1_doubled + 12)};
  return look_up(index, table);
}

/// Nibbles of octet i where byte j of 16 holds elements j and j + 16.
__device__ __forceinline__ void split_nibbles(std::uint8_t const* bytes,
                                              unsigned i,
                                              std::uint32_t (&codes)[2]) {
  load_words(bytes + 8 * (i % 2), codes);
  codes[0] = (codes[0] >> (4U * (i / 2))) & low_nibbles;
  codes[1] = (codes[1] >> (4U * (i / 2))) & low_nibbles;
}
/// Nibbles of octet i where byte j holds elements 2j and 2j + 1.
__device__ __forceinline__ void spread_nibbles(std::uint8_t const* bytes,
                                               unsigned i,
                                               std::uint32_t (&codes)[2]) {
  std::uint32_t const word = load_word(bytes + 4 * i);
  std::uint32_t const even = word & low_nibbles;
  std::uint32_t const odd = (word >> 4U) & low_nibbles;
  codes[0] = __byte_perm(even, odd, 0x5140);
  codes[1] = __byte_perm(even, odd, 0x7362);
}

/// 16 in each byte whose bit, of four from the lowest up, is set.
__device__ __forceinline__ std::uint32_t fifth_bits(std::uint32_t bits) {
  return (((bits & 15U) * 0x0020'4081U) & 0x0101'0101U) << 4U;
}
/// As split_nibbles with a fifth bit for each element.
__device__ __forceinline__ void split_five_bits(std::uint8_t const* bytes,
                                                std::uint32_t high,
                                                unsigned i,
                                                std::uint32_t (&codes)[2]) {
  split_nibbles(bytes, i, codes);
  codes[0] |= fifth_bits(high >> (8U * i));
  codes[1] |= fifth_bits(high >> (8U * i + 4U));
}

template <>
struct octets<quant_type::q4_0> {
  using block = quant::q4_0;
  static constexpr bool affine = false;
  __device__ __forceinline__ static octet load(block const& from, unsigned i) {
    octet to{{}, load_half(from.d), 0};
    split_nibbles(from.qs, i, to.codes);
    for (std::uint32_t& word : to.codes) { word = add_to_bytes(word, -8); }
    return to;
  }
};

template <>
struct octets<quant_type::q4_1> {
  using block = quant::q4_1;
  static constexpr bool affine = true;
  __device__ __forceinline__ static octet load(block const& from, unsigned i) {
    octet to{{}, load_half(from.d), load_half(from.m)};
    split_nibbles(from.qs, i, to.codes);
    return to;
  }
};

template <>
struct octets<quant_type::q5_0> {
  using block = quant::q5_0;
  static constexpr bool affine = false;
  __device__ __forceinline__ static octet load(block const& from, unsigned i) {
    octet to{{}, load_half(from.d), 0};
    split_five_bits(from.qs, load_word(&from.qh), i, to.codes);
    for (std::uint32_t& word : to.codes) { word = add_to_bytes(word, -16); }
    return to;
  }
};

template <>
struct octets<quant_type::q5_1> {
  using block = quant::q5_1;
  static constexpr bool affine = true;
  __device__ __forceinline__ static octet load(block const& from, unsigned i) {
    octet to{{}, load_half(from.d), load_half(from.m)};
    split_five_bits(from.qs, load_word(&from.qh), i, to.codes);
    return to;
  }
};

template <>
struct octets<quant_type::q8_0> {
  using block = quant::q8_0;
  static constexpr bool affine = false;
  __device__ __forceinline__ static octet load(block const& from, unsigned i) {
    octet to{{}, load_half(from.d), 0};
    load_words(from.qs + 8 * i, to.codes);
    return to;
  }
};

template <>
struct octets<quant_type::q8_1> {
  using block = quant::q8_1;
  static constexpr bool affine = false;
  __device__ __forceinline__ static octet load(block const& from, unsigned i) {
    octet to{{}, load_half(from.d), 0};
    load_words(from.qs + 8 * i, to.codes);
    return to;
  }
};

template <>
struct octets<quant_type::iq4_nl> {
  using block = quant::iq4_nl;
  static constexpr bool affine = false;
  __device__ __forceinline__ static octet load(block const& from, unsigned i) {
    octet to{{}, load_half(from.d), 0};
    split_nibbles(from.qs, i, to.codes);
    for (std::uint32_t& word : to.codes) { word = iq4_level(word); }
    return to;
  }
};

template <>
struct octets<quant_type::mxfp4> {
  using block = quant::mxfp4;
  static constexpr bool affine = false;
  __device__ __forceinline__ static octet load(block const& from, unsigned i) {
    octet to{{}, e8m0_half_value(from.e), 0};
    split_nibbles(from.qs, i, to.codes);
    for (std::uint32_t& word : to.codes) { word = e2m1_level(word); }
    return to;
  }
};

template <>
struct octets<quant_type::mxfp4_packed> {
  using block = quant::mxfp4_packed;
  static constexpr bool affine = false;
  __device__ __forceinline__ static octet load(block const& from, unsigned i) {
    octet to{{}, 0.5F, 0};
    spread_nibbles(from.qs, i, to.codes);
    for (std::uint32_t& word : to.codes) { word = e2m1_level(word); }
    return to;
  }
};

template <>
struct octets<quant_type::int4_g32> {
  using block = quant::int4_g32;
  static constexpr bool affine = false;
  __device__ __forceinline__ static octet load(block const& from, unsigned i) {
    octet to{{}, 1.0F, 0};
    spread_nibbles(from.qs, i, to.codes);
    for (std::uint32_t& word : to.codes) { word = add_to_bytes(word, -8); }
    return to;
  }
};

template <>
struct octets<quant_type::nvfp4> {
  using block = quant::nvfp4;
  static constexpr bool affine = false;
  __device__ __forceinline__ static octet load(block const& from, unsigned i) {
    octet to{{}, ue4m3_value(from.scales[i / 2]) * 0.5F, 0};
    load_words(from.qs + 8 * (i / 2), to.codes);
    for (std::uint32_t& word : to.codes) {
      word = e2m1_level((word >> (4U * (i % 2))) & low_nibbles);
    }
    return to;
  }
};

}  // namespace terrace::kernel::cuda::detail
