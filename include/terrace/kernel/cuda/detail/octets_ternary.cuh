// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/kernel/cuda/detail/octet.cuh>
#include <terrace/quant/q1_0.hpp>
#include <terrace/quant/q2_0.hpp>
#include <terrace/quant/tq1_0.hpp>
#include <terrace/quant/tq2_0.hpp>

#include <cstdint>

/// Octets of the types with one or two bits, or a base-3 digit, an element.
namespace terrace::kernel::cuda::detail {

template <>
struct octets<quant_type::q1_0> {
  using block = quant::q1_0;
  static constexpr bool affine = false;
  __device__ __forceinline__ static octet load(block const& from, unsigned i) {
    octet to{{}, load_half(from.d), 0};
    std::uint32_t const bits = from.bits[i];
    for (unsigned w = 0; w < 2; ++w) {
      std::uint32_t const positive = (((bits >> (4U * w)) & 15U) * 0x0020'4081U) & 0x0101'0101U;
      to.codes[w] = add_to_bytes(positive << 1U, -1);
    }
    return to;
  }
};

template <>
struct octets<quant_type::q2_0> {
  using block = quant::q2_0;
  static constexpr bool affine = false;
  __device__ __forceinline__ static octet load(block const& from, unsigned i) {
    octet to{{}, load_half(from.d), 0};
    for (unsigned w = 0; w < 2; ++w) {
      std::uint32_t const bits = from.qs[2 * i + w];
      std::uint32_t const pairs = (bits & 15U) | ((bits & 0xF0U) << 12U);
      to.codes[w] = add_to_bytes((pairs | (pairs << 6U)) & 0x0303'0303U, -1);
    }
    return to;
  }
};

template <>
struct octets<quant_type::tq2_0> {
  using block = quant::tq2_0;
  static constexpr bool affine = false;
  __device__ __forceinline__ static octet load(block const& from, unsigned i) {
    octet to{{}, load_half(from.d), 0};
    load_words(from.qs + 32 * (i / 16) + 8 * (i % 4), to.codes);
    for (std::uint32_t& word : to.codes) {
      word = add_to_bytes((word >> (2U * (i / 4 % 4))) & 0x0303'0303U, -1);
    }
    return to;
  }
};

template <>
struct octets<quant_type::tq1_0> {
  using block = quant::tq1_0;
  static constexpr bool affine = false;
  __device__ __forceinline__ static octet load(block const& from, unsigned i) {
    octet to{{}, load_half(from.d), 0};
    if (i < 20) {  // five digits of 32 bytes
      load_words(from.qs + 8 * (i % 4), to.codes);
      to.codes[0] = digits(to.codes[0], i / 4);
      to.codes[1] = digits(to.codes[1], i / 4);
    } else if (i < 30) {  // five digits of 16 bytes
      load_words(from.qs + 32 + 8 * (i % 2), to.codes);
      to.codes[0] = digits(to.codes[0], (i - 20) / 2);
      to.codes[1] = digits(to.codes[1], (i - 20) / 2);
    } else {  // four digits of 4 bytes
      std::uint32_t const bytes = load_word(from.qh);
      to.codes[0] = digits(bytes, 2 * (i - 30));
      to.codes[1] = digits(bytes, 2 * (i - 30) + 1);
    }
    return to;
  }

 private:
  /// Digit n, less 1, of each of four bytes.
  __device__ __forceinline__ static std::uint32_t digits(std::uint32_t bytes, unsigned n) {
    std::uint32_t const power = n == 0 ? 1 : n == 1 ? 3 : n == 2 ? 9 : n == 3 ? 27 : 81;
    std::uint32_t result = 0;
#pragma unroll
    for (unsigned b = 0; b < 4; ++b) {
      std::uint32_t const fraction = (((bytes >> (8U * b)) & 0xFFU) * power) & 0xFFU;
      result |= ((fraction * 3U) >> 8U) << (8U * b);
    }
    return add_to_bytes(result, -1);
  }
};

}  // namespace terrace::kernel::cuda::detail
