// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/kernel/cuda/detail/unit.cuh>

#include <cstdint>

/// Units of the types whose codes are rows of a codebook. A row of eight levels out of three is a
/// word of eight selectors in shared memory, which byte permutations turn into codes.
namespace terrace::kernel::cuda::detail {

/// 0xFF in byte k where bit k of four is set.
__device__ __forceinline__ std::uint32_t mask_of_bits(std::uint32_t four) {
  std::uint32_t const tops = four * 0x1020'4080U;
  return __byte_perm(tops, tops, 0xBA98);
}
/// Four positive bytes, negated where the mask is set.
__device__ __forceinline__ std::uint32_t negate_masked(std::uint32_t bytes, std::uint32_t mask) {
  return (bytes ^ mask) + (mask & 0x0101'0101U);  // no byte is zero, so none carries
}

template <>
struct units<quant_type::iq2_xxs> {
  using block = quant::iq2_xxs;
  static constexpr bool affine = false;
  static constexpr int bias = 0;

  struct tables {
    std::uint32_t selectors[256];
    __device__ void fill() {
      for (unsigned row = threadIdx.x; row < 256; row += blockDim.x) {
        std::uint64_t const levels = iq2_xxs_book.rows[row];
        std::uint32_t word = 0;
        for (unsigned i = 0; i < 8; ++i) {
          auto const level = static_cast<std::uint32_t>(levels >> (8 * i)) & 0xFFU;
          word |= (level == 8 ? 0U : level == 25 ? 1U : 2U) << (4 * i);
        }
        selectors[row] = word;
      }
    }
  };

  __device__ __forceinline__ static unit<1> load(block const& from,
                                                 unsigned i,
                                                 tables const& kept) {
    constexpr std::uint32_t levels = 8U | 25U << 8U | 43U << 16U;
    std::uint32_t words[2];
    shift_words(&from.groups[i], words);
    std::uint32_t const signs = words[1];
    // Bit 7l of `odd`: whether bits 7l to 7l + 6 hold an odd number of ones.
    std::uint32_t const pairs = signs ^ (signs >> 1U);
    std::uint32_t const fours = pairs ^ (pairs >> 2U);
    std::uint32_t const odd = fours ^ (fours >> 3U) ^ (signs >> 3U);
    unit<1> to{{}, {quarter_scale(load_half(from.d), signs >> 28U)}, {}};
#pragma unroll
    for (unsigned l = 0; l < 4; ++l) {
      std::uint32_t const selector = kept.selectors[(words[0] >> (8 * l)) & 0xFFU];
      std::uint32_t const low = (signs >> (7 * l)) & 15U;
      std::uint32_t const high = ((signs >> (7 * l + 4)) & 7U) | (((odd >> (7 * l)) & 1U) << 3U);
      to.codes[2 * l] = negate_masked(__byte_perm(levels, 0, selector), mask_of_bits(low));
      to.codes[2 * l + 1] =
          negate_masked(__byte_perm(levels, 0, selector >> 16U), mask_of_bits(high));
    }
    return to;
  }
};

template <>
struct units<quant_type::iq1_s> {
  using block = quant::iq1_s;
  static constexpr bool affine = false;
  static constexpr int bias = 0;

  struct tables {
    std::uint32_t selectors[2048];
    __device__ void fill() {
      for (unsigned row = threadIdx.x; row < 2048; row += blockDim.x) {
        std::uint64_t const digits = iq1_s_book.rows[row];
        std::uint32_t word = 0;
        for (unsigned i = 0; i < 8; ++i) {
          word |= (static_cast<std::uint32_t>(digits >> (8 * i)) & 3U) << (4 * i);
        }
        selectors[row] = word;
      }
    }
  };

  __device__ __forceinline__ static unit<1> load(block const& from,
                                                 unsigned i,
                                                 tables const& kept) {
    std::uint32_t const word = load_u16(&from.qh[i]);
    std::uint32_t const rows = shift_word(from.qs + 4 * i);
    // A digit shifted by an eighth down or up, in eighths: -9, -1, 7 or -7, 1, 9.
    std::uint32_t const levels = (word & 0x8000U) != 0 ? 0x0007'FFF7U : 0x0009'01F9U;
    auto const scale = static_cast<float>(2U * ((word >> 12U) & 7U) + 1U);
    unit<1> to{{}, {load_half(from.d) * scale * 0.125F}, {}};
#pragma unroll
    for (unsigned l = 0; l < 4; ++l) {
      std::uint32_t const row = ((rows >> (8 * l)) & 0xFFU) | (((word >> (3 * l)) & 7U) << 8U);
      std::uint32_t const selector = kept.selectors[row];
      to.codes[2 * l] = __byte_perm(levels, 0, selector);
      to.codes[2 * l + 1] = __byte_perm(levels, 0, selector >> 16U);
    }
    return to;
  }
};

}  // namespace terrace::kernel::cuda::detail
