// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/kernel/cuda/activations.hpp>
#include <terrace/kernel/cuda/detail/weights.cuh>

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

/// Units of 32 consecutive weights as signed bytes, and their products with 8-bit codes of inputs.
namespace terrace::kernel::cuda::detail {

inline constexpr unsigned unit_elements = 32;
static_assert(unit_elements == code_columns, "a unit meets one scale of its input");

/// Weight i is scale * code + offset, of its part; its code is byte i % 4 of word i / 4, plus the
/// type's bias, less `minus_times` of the type times the same byte of `minus`. Integer units are
/// the scarce ones here, dot products of bytes are cheap: two sides cost less than signed bytes.
template <unsigned Parts>
struct unit {
  std::uint32_t codes[8];
  std::uint32_t minus[8];
  float scale[Parts];
  float offset[Parts];
};

/// Scales that a unit of the type has.
template <quant_type Type>
inline constexpr unsigned unit_parts =
    Type == quant_type::q2_k || Type == quant_type::q3_k || Type == quant_type::q6_k ||
            Type == quant_type::iq2_xs || Type == quant_type::iq2_s || Type == quant_type::iq1_m ||
            Type == quant_type::nvfp4
        ? 2
        : 1;

/// How the codes of a type are to be read.
struct unit_traits {
  bool affine = false;  ///< offsets differ from 0
  int bias = 0;
  int minus_times = 0;  ///< 0: `minus` is not set
  bool woven = false;   ///< words 2w and 2w + 1 hold elements 4w.. and 4w + 16.. in turn
};

/// Tables that a block of threads keeps in shared memory; most types need none.
struct no_tables {
  __device__ void fill() {}
};

/// How units are read from encoded rows in shared memory. This form serves every type by its
/// octets; types that are worth it have their own.
template <quant_type Type>
struct units {
  using block = typename octets<Type>::block;
  using tables = no_tables;
  static constexpr unit_traits traits{.affine = octets<Type>::affine};

  /// Unit i of a block. The word after the block may be read.
  __device__ __forceinline__ static unit<unit_parts<Type>> load(block const& from,
                                                                unsigned i,
                                                                tables const&) {
    unit<unit_parts<Type>> to;
#pragma unroll
    for (unsigned o = 0; o < 4; ++o) {
      octet const one = octets<Type>::load(from, 4 * i + o);
      to.codes[2 * o] = one.codes[0];
      to.codes[2 * o + 1] = one.codes[1];
      to.scale[o * unit_parts<Type> / 4] = one.scale;
      to.offset[o * unit_parts<Type> / 4] = one.offset;
    }
    return to;
  }
};

/// Codes of 32 columns of an input.
struct coded_input {
  std::uint32_t codes[8];
  float scale;
  int sums[2];
};

/// Inputs in the form of `activations`.
struct coded_inputs {
  std::int8_t const* codes;
  float const* scales;
  std::uint32_t const* sums;
  std::uint32_t units;  ///< of a row

  [[nodiscard]] __device__ __forceinline__ coded_input load(std::uint32_t row,
                                                            std::uint32_t unit) const {
    std::size_t const at = static_cast<std::size_t>(row) * units + unit;
    auto const* const from = reinterpret_cast<uint4 const*>(codes + unit_elements * at);
    uint4 const first = __ldg(from);
    uint4 const second = __ldg(from + 1);
    auto const both = static_cast<int>(__ldg(sums + at));
    return {{first.x, first.y, first.z, first.w, second.x, second.y, second.z, second.w},
            __ldg(scales + at),
            {static_cast<int>(static_cast<std::int16_t>(both)), both >> 16}};
  }
  [[nodiscard]] __host__ coded_inputs from_row(std::size_t row) const {
    return {codes + row * units * unit_elements, scales + row * units, sums + row * units, units};
  }
};

/// The order of codes that the type's units have.
template <quant_type Type>
__device__ __forceinline__ void arrange(coded_input& x) {
  if constexpr (units<Type>::traits.woven) {
    std::uint32_t woven[8];
#pragma unroll
    for (unsigned w = 0; w < 4; ++w) {
      woven[2 * w] = __byte_perm(x.codes[w], x.codes[4 + w], 0x5140);
      woven[2 * w + 1] = __byte_perm(x.codes[w], x.codes[4 + w], 0x7362);
    }
#pragma unroll
    for (unsigned w = 0; w < 8; ++w) { x.codes[w] = woven[w]; }
  }
}

/// The product of 32 weights with 32 columns of an input, which is arranged.
template <quant_type Type>
__device__ __forceinline__ float unit_dot(unit<unit_parts<Type>> const& w, coded_input const& x) {
  constexpr unit_traits traits = units<Type>::traits;
  constexpr unsigned parts = unit_parts<Type>;
  float result = 0;
#pragma unroll
  for (unsigned p = 0; p < parts; ++p) {
    int const sum = parts == 1 ? x.sums[0] + x.sums[1] : x.sums[p];
    int dot = 0;
    int less = 0;
#pragma unroll
    for (unsigned i = 8 * p / parts; i < 8 * (p + 1) / parts; ++i) {
      dot = __dp4a(static_cast<int>(w.codes[i]), static_cast<int>(x.codes[i]), dot);
      if constexpr (traits.minus_times != 0) {
        less = __dp4a(static_cast<int>(w.minus[i]), static_cast<int>(x.codes[i]), less);
      }
    }
    dot += traits.bias * sum - traits.minus_times * less;
    auto const codes = static_cast<float>(dot);
    result = p == 0 ? __fmul_rn(w.scale[p], codes) : fmaf(w.scale[p], codes, result);
    if constexpr (traits.affine) { result = fmaf(w.offset[p], static_cast<float>(sum), result); }
  }
  return result;
}

}  // namespace terrace::kernel::cuda::detail
