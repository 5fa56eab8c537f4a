// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/kernel/cuda/detail/octets_32.cuh>
#include <terrace/quant/iq4_xs.hpp>
#include <terrace/quant/k_scales.hpp>
#include <terrace/quant/q2_k.hpp>
#include <terrace/quant/q3_k.hpp>
#include <terrace/quant/q4_k.hpp>
#include <terrace/quant/q5_k.hpp>
#include <terrace/quant/q6_k.hpp>
#include <terrace/quant/q8_k.hpp>

#include <cstdint>

/// Octets of the types that scale scales: 256 elements, quantised factors for 16 or 32 of them.
namespace terrace::kernel::cuda::detail {

/// quant::k_scales on a device.
__device__ __forceinline__ std::uint32_t k_scale(quant::k_scales const& from, unsigned j) {
  std::uint8_t const* const b = from.bytes;
  return j < 4 ? b[j] & 63U : (b[j + 4] & 15U) | ((b[j - 4] >> 6U) << 4U);
}
__device__ __forceinline__ std::uint32_t k_minimum(quant::k_scales const& from, unsigned j) {
  std::uint8_t const* const b = from.bytes;
  return j < 4 ? b[j + 4] & 63U : (b[j + 4] >> 4U) | ((b[j] >> 6U) << 4U);
}

template <>
struct octets<quant_type::q2_k> {
  using block = quant::q2_k;
  static constexpr bool affine = true;
  __device__ __forceinline__ static octet load(block const& from, unsigned i) {
    std::uint32_t const factors = from.scales[i / 2];
    octet to{{},
             load_half(from.d) * static_cast<float>(factors & 15U),
             -(load_half(from.dmin) * static_cast<float>(factors >> 4U))};
    load_words(from.qs + 32 * (i / 16) + 8 * (i % 4), to.codes);
    for (std::uint32_t& word : to.codes) { word = (word >> (2U * (i / 4 % 4))) & 0x0303'0303U; }
    return to;
  }
};

template <>
struct octets<quant_type::q3_k> {
  using block = quant::q3_k;
  static constexpr bool affine = false;
  __device__ __forceinline__ static octet load(block const& from, unsigned i) {
    unsigned const k = i / 2;
    std::uint32_t const low = (from.scales[k % 8] >> (4U * (k / 8))) & 15U;
    std::uint32_t const high = (from.scales[8 + k % 4] >> (2U * (k / 4))) & 3U;
    octet to{
        {}, load_half(from.d) * static_cast<float>(static_cast<int>(low | (high << 4U)) - 32), 0};
    std::uint32_t top[2];
    load_words(from.hmask + 8 * (i % 4), top);
    load_words(from.qs + 32 * (i / 16) + 8 * (i % 4), to.codes);
    for (unsigned w = 0; w < 2; ++w) {
      std::uint32_t const third = (top[w] >> (i / 4)) & 0x0101'0101U;
      std::uint32_t const code = ((to.codes[w] >> (2U * (i / 4 % 4))) & 0x0303'0303U);
      to.codes[w] = add_to_bytes(code | (third << 2U), -4);
    }
    return to;
  }
};

template <>
struct octets<quant_type::q4_k> {
  using block = quant::q4_k;
  static constexpr bool affine = true;
  __device__ __forceinline__ static octet load(block const& from, unsigned i) {
    unsigned const j = i / 4;
    octet to{{},
             load_half(from.d) * static_cast<float>(k_scale(from.scales, j)),
             -(load_half(from.dmin) * static_cast<float>(k_minimum(from.scales, j)))};
    load_words(from.qs + 32 * (j / 2) + 8 * (i % 4), to.codes);
    for (std::uint32_t& word : to.codes) { word = (word >> (4U * (j % 2))) & low_nibbles; }
    return to;
  }
};

template <>
struct octets<quant_type::q5_k> {
  using block = quant::q5_k;
  static constexpr bool affine = true;
  __device__ __forceinline__ static octet load(block const& from, unsigned i) {
    unsigned const j = i / 4;
    octet to{{},
             load_half(from.d) * static_cast<float>(k_scale(from.scales, j)),
             -(load_half(from.dmin) * static_cast<float>(k_minimum(from.scales, j)))};
    std::uint32_t top[2];
    load_words(from.qh + 8 * (i % 4), top);
    load_words(from.qs + 32 * (j / 2) + 8 * (i % 4), to.codes);
    for (unsigned w = 0; w < 2; ++w) {
      to.codes[w] =
          ((to.codes[w] >> (4U * (j % 2))) & low_nibbles) | (((top[w] >> j) & 0x0101'0101U) << 4U);
    }
    return to;
  }
};

template <>
struct octets<quant_type::q6_k> {
  using block = quant::q6_k;
  static constexpr bool affine = false;
  __device__ __forceinline__ static octet load(block const& from, unsigned i) {
    unsigned const half = i / 16;
    unsigned const group = i / 4 % 4;
    octet to{{}, load_half(from.d) * static_cast<float>(static_cast<int>(from.scales[i / 2])), 0};
    std::uint32_t top[2];
    load_words(from.qh + 32 * half + 8 * (i % 4), top);
    load_words(from.ql + 64 * half + 32 * (group % 2) + 8 * (i % 4), to.codes);
    for (unsigned w = 0; w < 2; ++w) {
      std::uint32_t const code = ((to.codes[w] >> (4U * (group / 2))) & low_nibbles) |
                                 (((top[w] >> (2U * group)) & 0x0303'0303U) << 4U);
      to.codes[w] = add_to_bytes(code, -32);
    }
    return to;
  }
};

template <>
struct octets<quant_type::q8_k> {
  using block = quant::q8_k;
  static constexpr bool affine = false;
  __device__ __forceinline__ static octet load(block const& from, unsigned i) {
    octet to{{}, __uint_as_float(load_word(&from.d)), 0};
    load_words(from.qs + 8 * i, to.codes);
    return to;
  }
};

template <>
struct octets<quant_type::iq4_xs> {
  using block = quant::iq4_xs;
  static constexpr bool affine = false;
  __device__ __forceinline__ static octet load(block const& from, unsigned i) {
    unsigned const j = i / 4;
    std::uint32_t const low = (from.scales_l[j / 2] >> (4U * (j % 2))) & 15U;
    std::uint32_t const high = (load_u16(&from.scales_h) >> (2U * j)) & 3U;
    octet to{
        {}, load_half(from.d) * static_cast<float>(static_cast<int>(low | (high << 4U)) - 32), 0};
    split_nibbles(from.qs + 16 * j, i % 4, to.codes);
    for (std::uint32_t& word : to.codes) { word = iq4_level(word); }
    return to;
  }
};

}  // namespace terrace::kernel::cuda::detail
