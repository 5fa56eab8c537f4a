// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/kernel/cuda/detail/unit.cuh>

#include <cstdint>

/// Units of the types that scale scales.
namespace terrace::kernel::cuda::detail {

/// Scale and offset of sub-block j; `factors` holds both halves of a block's first word.
__device__ __forceinline__ void k_factors(std::uint32_t factors,
                                          quant::k_scales const& from,
                                          unsigned j,
                                          unit<1>& to) {
  to.scale[0] = half_value(factors & 0xFFFFU) * static_cast<float>(k_scale(from, j));
  to.offset[0] = -(half_value(factors >> 16U) * static_cast<float>(k_minimum(from, j)));
}

template <>
struct units<quant_type::q4_k> {
  using block = quant::q4_k;
  using tables = no_tables;
  static constexpr unit_traits traits{.affine = true};
  __device__ __forceinline__ static unit<1> load(block const& from, unsigned i, tables const&) {
    unit<1> to;
    k_factors(shift_word(&from), from.scales, i, to);
    shift_words(from.qs + 32 * (i / 2), to.codes);
    for (std::uint32_t& word : to.codes) { word = (word >> (4U * (i % 2))) & low_nibbles; }
    return to;
  }
};

template <>
struct units<quant_type::q5_k> {
  using block = quant::q5_k;
  using tables = no_tables;
  static constexpr unit_traits traits{.affine = true};
  __device__ __forceinline__ static unit<1> load(block const& from, unsigned i, tables const&) {
    unit<1> to;
    k_factors(shift_word(&from), from.scales, i, to);
    shift_words(from.qs + 32 * (i / 2), to.codes);
    std::uint32_t top[8];
    shift_words(from.qh, top);
#pragma unroll
    for (unsigned w = 0; w < 8; ++w) {
      to.codes[w] =
          ((to.codes[w] >> (4U * (i % 2))) & low_nibbles) | (((top[w] >> i) & 0x0101'0101U) << 4U);
    }
    return to;
  }
};

template <>
struct units<quant_type::q6_k> {
  using block = quant::q6_k;
  using tables = no_tables;
  static constexpr unit_traits traits{.bias = -32};
  __device__ __forceinline__ static unit<2> load(block const& from, unsigned i, tables const&) {
    unsigned const half = i / 4;
    unsigned const group = i % 4;
    float const d = load_half(from.d);
    unit<2> to{{},
               {},
               {d * static_cast<float>(static_cast<int>(from.scales[2 * i])),
                d * static_cast<float>(static_cast<int>(from.scales[2 * i + 1]))},
               {}};
    shift_words(from.ql + 64 * half + 32 * (group % 2), to.codes);
    std::uint32_t top[8];
    shift_words(from.qh + 32 * half, top);
#pragma unroll
    for (unsigned w = 0; w < 8; ++w) {
      to.codes[w] = ((to.codes[w] >> (4U * (group / 2))) & low_nibbles) |
                    (((top[w] >> (2U * group)) & 0x0303'0303U) << 4U);
    }
    return to;
  }
};

}  // namespace terrace::kernel::cuda::detail
