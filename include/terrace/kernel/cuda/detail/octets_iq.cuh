// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/kernel/cuda/detail/codebooks.cuh>
#include <terrace/kernel/cuda/detail/octet.cuh>
#include <terrace/quant/iq1_m.hpp>
#include <terrace/quant/iq1_s.hpp>
#include <terrace/quant/iq2_s.hpp>
#include <terrace/quant/iq2_xs.hpp>
#include <terrace/quant/iq2_xxs.hpp>
#include <terrace/quant/iq3_s.hpp>
#include <terrace/quant/iq3_xxs.hpp>

#include <cstdint>

/// Octets of the types whose codes are rows of a codebook: an octet is one row of 8 or two of 4.
namespace terrace::kernel::cuda::detail {

/// quant::even_signs on a device.
__device__ __forceinline__ std::uint32_t even_signs(std::uint32_t seven) {
  return seven | ((static_cast<std::uint32_t>(__popc(seven)) & 1U) << 7U);
}

/// Four positive bytes, byte k negated where bit k of `signs` is set.
__device__ __forceinline__ std::uint32_t negate_bytes(std::uint32_t bytes, std::uint32_t signs) {
  std::uint32_t const negative = ((signs & 15U) * 0x0020'4081U) & 0x0101'0101U;
  return (bytes ^ (negative * 255U)) + negative;  // no byte is zero, so none carries
}

__device__ __forceinline__ octet signed_octet(std::uint64_t row, std::uint32_t signs, float scale) {
  return {{negate_bytes(static_cast<std::uint32_t>(row), signs),
           negate_bytes(static_cast<std::uint32_t>(row >> 32U), signs >> 4U)},
          scale,
          0};
}
__device__ __forceinline__ octet signed_octet(std::uint32_t first,
                                              std::uint32_t second,
                                              std::uint32_t signs,
                                              float scale) {
  return {{negate_bytes(first, signs), negate_bytes(second, signs >> 4U)}, scale, 0};
}

/// d * (0.5 + code) / 4, as three types scale.
__device__ __forceinline__ float quarter_scale(float d, std::uint32_t code) {
  return d * (0.5F + static_cast<float>(code)) * 0.25F;
}

template <>
struct octets<quant_type::iq2_xxs> {
  using block = quant::iq2_xxs;
  static constexpr bool affine = false;
  __device__ __forceinline__ static octet load(block const& from, unsigned i) {
    block::group const& group = from.groups[i / 4];
    std::uint32_t const word = load_word(&group.signs_and_scale);
    return signed_octet(iq2_xxs_book.rows[group.index[i % 4]],
                        even_signs((word >> (7U * (i % 4))) & 127U),
                        quarter_scale(load_half(from.d), word >> 28U));
  }
};

template <>
struct octets<quant_type::iq2_xs> {
  using block = quant::iq2_xs;
  static constexpr bool affine = false;
  __device__ __forceinline__ static octet load(block const& from, unsigned i) {
    std::uint32_t const word = load_u16(&from.qs[i]);
    std::uint32_t const code = (from.scales[i / 4] >> (4U * (i / 2 % 2))) & 15U;
    return signed_octet(iq2_xs_book.rows[word & 511U],
                        even_signs(word >> 9U),
                        quarter_scale(load_half(from.d), code));
  }
};

template <>
struct octets<quant_type::iq2_s> {
  using block = quant::iq2_s;
  static constexpr bool affine = false;
  __device__ __forceinline__ static octet load(block const& from, unsigned i) {
    std::uint32_t const row =
        from.qs[i] | ((static_cast<std::uint32_t>(from.qh[i / 4]) >> (2U * (i % 4)) & 3U) << 8U);
    std::uint32_t const code = (from.scales[i / 4] >> (4U * (i / 2 % 2))) & 15U;
    return signed_octet(
        iq2_s_book.rows[row], from.signs[i], quarter_scale(load_half(from.d), code));
  }
};

template <>
struct octets<quant_type::iq3_xxs> {
  using block = quant::iq3_xxs;
  static constexpr bool affine = false;
  __device__ __forceinline__ static octet load(block const& from, unsigned i) {
    std::uint32_t const word = load_word(&from.signs_and_scale[i / 4]);
    float const scale = load_half(from.d) * (0.5F + static_cast<float>(word >> 28U)) * 0.5F;
    return signed_octet(iq3_xxs_book.rows[from.qs[2 * i]],
                        iq3_xxs_book.rows[from.qs[2 * i + 1]],
                        even_signs((word >> (7U * (i % 4))) & 127U),
                        scale);
  }
};

template <>
struct octets<quant_type::iq3_s> {
  using block = quant::iq3_s;
  static constexpr bool affine = false;
  __device__ __forceinline__ static octet load(block const& from, unsigned i) {
    std::uint32_t const high = static_cast<std::uint32_t>(from.qh[i / 4]) >> (2U * (i % 4));
    std::uint32_t const code = (from.scales[i / 8] >> (4U * (i / 4 % 2))) & 15U;
    return signed_octet(iq3_s_book.rows[from.qs[2 * i] | ((high & 1U) << 8U)],
                        iq3_s_book.rows[from.qs[2 * i + 1] | ((high & 2U) << 7U)],
                        from.signs[i],
                        load_half(from.d) * static_cast<float>(1U + 2U * code));
  }
};

/// The elements of a row of ternary digits, shifted by an eighth down or up, in eighths.
__device__ __forceinline__ octet shifted_octet(std::uint32_t row, bool down, float scale) {
  std::uint64_t const digits = iq1_s_book.rows[row];
  std::uint32_t const shift = down ? 0xF7F7'F7F7U : 0xF9F9'F9F9U;  // -9 or -7 in each byte
  return {{__vadd4(static_cast<std::uint32_t>(digits) << 3U, shift),
           __vadd4(static_cast<std::uint32_t>(digits >> 32U) << 3U, shift)},
          scale,
          0};
}

template <>
struct octets<quant_type::iq1_s> {
  using block = quant::iq1_s;
  static constexpr bool affine = false;
  __device__ __forceinline__ static octet load(block const& from, unsigned i) {
    std::uint32_t const word = load_u16(&from.qh[i / 4]);
    std::uint32_t const row = from.qs[i] | (((word >> (3U * (i % 4))) & 7U) << 8U);
    auto const odd = static_cast<float>(2U * ((word >> 12U) & 7U) + 1U);
    return shifted_octet(row, (word & 0x8000U) != 0, load_half(from.d) * odd * 0.125F);
  }
};

template <>
struct octets<quant_type::iq1_m> {
  using block = quant::iq1_m;
  static constexpr bool affine = false;
  __device__ __forceinline__ static octet load(block const& from, unsigned i) {
    std::uint32_t const nibble = (from.qh[i / 2] >> (4U * (i % 2))) & 15U;
    std::uint32_t words[2];
    load_words(from.scales, words);
    std::uint32_t const super = ((words[0] >> 12U) & 0x000FU) | ((words[0] >> 24U) & 0x00F0U) |
                                ((words[1] >> 4U) & 0x0F00U) | ((words[1] >> 16U) & 0xF000U);
    unsigned const k = i / 2;
    std::uint32_t const fields = words[k / 8] >> (16U * (k / 4 % 2));
    auto const odd = static_cast<float>(2U * ((fields >> (3U * (k % 4))) & 7U) + 1U);
    return shifted_octet(
        from.qs[i] | ((nibble & 7U) << 8U), (nibble & 8U) != 0, half_value(super) * odd * 0.125F);
  }
};

}  // namespace terrace::kernel::cuda::detail
