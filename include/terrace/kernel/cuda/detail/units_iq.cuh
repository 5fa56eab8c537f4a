// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/kernel/cuda/detail/unit.cuh>

#include <cstdint>

/// Units of the types whose codes are rows of a codebook. A row of eight levels out of three is a
/// word of eight selectors in shared memory, which byte permutations turn into codes.
namespace terrace::kernel::cuda::detail {

/// 0xFF in each byte whose upper bit is set.
__device__ __forceinline__ std::uint32_t spread_tops(std::uint32_t word) {
  return __byte_perm(word, word, 0xBA98);
}

template <>
struct units<quant_type::iq2_xxs> {
  using block = quant::iq2_xxs;
  static constexpr unit_traits traits{.minus_times = 2};

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
    block::group const& group = from.groups[i];
    std::uint32_t const signs = shift_word(&group.signs_and_scale);
    // Bit 7l of `odd`: whether bits 7l to 7l + 6 hold an odd number of ones.
    std::uint32_t const pairs = signs ^ (signs >> 1U);
    std::uint32_t const fours = pairs ^ (pairs >> 2U);
    std::uint32_t const odd = fours ^ (fours >> 3U) ^ (signs >> 3U);
    unit<1> to{{}, {}, {quarter_scale(load_half(from.d), signs >> 28U)}, {}};
#pragma unroll
    for (unsigned l = 0; l < 4; ++l) {
      std::uint32_t const selector = kept.selectors[group.index[l]];
      to.codes[2 * l] = __byte_perm(levels, 0, selector);
      to.codes[2 * l + 1] = __byte_perm(levels, 0, selector >> 16U);
      // Products put bits 0 to 3, and 4 to 6, where the upper bits of four bytes are; the eighth
      // sign makes their number even.
      std::uint32_t const seven = (signs >> (7 * l)) & 127U;
      std::uint32_t const eighth = (odd & (1U << (7 * l))) * (1U << (31 - 7 * l));
      to.minus[2 * l] = to.codes[2 * l] & spread_tops(seven * 0x1020'4080U);
      to.minus[2 * l + 1] = to.codes[2 * l + 1] & spread_tops(seven * 0x0002'0408U + eighth);
    }
    return to;
  }
};

template <>
struct units<quant_type::iq1_s> {
  using block = quant::iq1_s;
  static constexpr unit_traits traits{};

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
    // A digit shifted by an eighth down or up, in eighths: -9, -1, 7 or -7, 1, 9.
    std::uint32_t const levels = (word & 0x8000U) != 0 ? 0x0007'FFF7U : 0x0009'01F9U;
    auto const scale = static_cast<float>(2U * ((word >> 12U) & 7U) + 1U);
    unit<1> to{{}, {}, {load_half(from.d) * scale * 0.125F}, {}};
#pragma unroll
    for (unsigned l = 0; l < 4; ++l) {
      std::uint32_t const row = from.qs[4 * i + l] + 256U * ((word >> (3 * l)) & 7U);
      std::uint32_t const selector = kept.selectors[row];
      to.codes[2 * l] = __byte_perm(levels, 0, selector);
      to.codes[2 * l + 1] = __byte_perm(levels, 0, selector >> 16U);
    }
    return to;
  }
};

}  // namespace terrace::kernel::cuda::detail
