// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/kernel/cuda/detail/unit.cuh>

#include <cstdint>

/// Units of the types whose scales lie beside 32 elements.
namespace terrace::kernel::cuda::detail {

/// Sixteen levels, eight of either sign: which nibbles are negative, and magnitudes of both.
struct signed_levels {
  std::uint32_t plus[2];
  std::uint32_t minus[2];
  bool upper_is_minus;  ///< whether nibbles from 8 on are the negative ones
};
inline constexpr signed_levels e2m1_sides{
    {table_word(quant::e2m1_doubled), table_word(quant::e2m1_doubled + 4)},
    {table_word(quant::e2m1_doubled), table_word(quant::e2m1_doubled + 4)},
    true};
[[nodiscard]] __host__ __device__ constexpr std::uint32_t negated_word(std::int8_t const* levels) {
  std::int8_t const negated[4] = {static_cast<std::int8_t>(-levels[0]),
                                  static_cast<std::int8_t>(-levels[1]),
                                  static_cast<std::int8_t>(-levels[2]),
                                  static_cast<std::int8_t>(-levels[3])};
  return table_word(negated);
}
inline constexpr signed_levels iq4_sides{
    {table_word(quant::iq4_levels + 8), table_word(quant::iq4_levels + 12)},
    {negated_word(quant::iq4_levels), negated_word(quant::iq4_levels + 4)},
    false};

/// Magnitudes that the nibbles of four words name, on the side of their sign and zero on the other,
/// in the order of the nibbles, lowest first. A selector whose upper bit is set repeats the sign of
/// a table's byte, and magnitudes have none.
__device__ __forceinline__ void look_up_sides(signed_levels const& levels,
                                              std::uint32_t const (&words)[4],
                                              unit<1>& to) {
#pragma unroll
  for (unsigned w = 0; w < 4; ++w) {
    std::uint32_t const flipped = words[w] ^ 0x8888'8888U;
    std::uint32_t const plus = levels.upper_is_minus ? words[w] : flipped;
    std::uint32_t const minus = levels.upper_is_minus ? flipped : words[w];
    to.codes[2 * w] = __byte_perm(levels.plus[0], levels.plus[1], plus);
    to.codes[2 * w + 1] = __byte_perm(levels.plus[0], levels.plus[1], plus >> 16U);
    to.minus[2 * w] = __byte_perm(levels.minus[0], levels.minus[1], minus);
    to.minus[2 * w + 1] = __byte_perm(levels.minus[0], levels.minus[1], minus >> 16U);
  }
}

template <>
struct units<quant_type::mxfp4> {
  using block = quant::mxfp4;
  using tables = no_tables;
  static constexpr unit_traits traits{.minus_times = 1, .woven = true};
  __device__ __forceinline__ static unit<1> load(block const& from, unsigned, tables const&) {
    unit<1> to{{}, {}, {e8m0_half_value(from.e)}, {}};
    std::uint32_t words[4];
    shift_words(from.qs, words);
    constexpr signed_levels levels = e2m1_sides;
    look_up_sides(levels, words, to);
    return to;
  }
};

template <>
struct units<quant_type::mxfp4_packed> {
  using block = quant::mxfp4_packed;
  using tables = no_tables;
  static constexpr unit_traits traits{.minus_times = 1};
  __device__ __forceinline__ static unit<1> load(block const& from, unsigned, tables const&) {
    unit<1> to{{}, {}, {0.5F}, {}};
    std::uint32_t words[4];
    shift_words(from.qs, words);
    constexpr signed_levels levels = e2m1_sides;
    look_up_sides(levels, words, to);
    return to;
  }
};

template <>
struct units<quant_type::int4_g32> {
  using block = quant::int4_g32;
  using tables = no_tables;
  static constexpr unit_traits traits{.bias = -8};
  __device__ __forceinline__ static unit<1> load(block const& from, unsigned, tables const&) {
    unit<1> to{{}, {}, {1.0F}, {}};
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
  static constexpr unit_traits traits{.bias = -8};
  __device__ __forceinline__ static unit<1> load(block const& from, unsigned, tables const&) {
    unit<1> to{{}, {}, {load_half(from.d)}, {}};
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
  static constexpr unit_traits traits{.minus_times = 1, .woven = true};
  __device__ __forceinline__ static unit<1> load(block const& from, unsigned, tables const&) {
    unit<1> to{{}, {}, {load_half(from.d)}, {}};
    std::uint32_t words[4];
    shift_words(from.qs, words);
    constexpr signed_levels levels = iq4_sides;
    look_up_sides(levels, words, to);
    return to;
  }
};

template <>
struct units<quant_type::q8_0> {
  using block = quant::q8_0;
  using tables = no_tables;
  static constexpr unit_traits traits{};
  __device__ __forceinline__ static unit<1> load(block const& from, unsigned, tables const&) {
    unit<1> to{{}, {}, {load_half(from.d)}, {}};
    shift_words(from.qs, to.codes);
    return to;
  }
};

}  // namespace terrace::kernel::cuda::detail
