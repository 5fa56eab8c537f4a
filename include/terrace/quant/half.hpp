// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstdint>

namespace terrace::quant {

// Conversions between float32 and the small number formats, in integer arithmetic plus at most one
// exact subtraction, so that the bits do not depend on compiler flags or on the presence of
// conversion instructions. All are branch-free enough to be vectorised in a loop.

/// IEEE half -> float32; exact. A signalling NaN comes out quiet, as the hardware conversion does
/// it.
[[nodiscard]] constexpr float f16_to_f32(std::uint16_t half) noexcept {
  std::uint32_t const magnitude = half & 0x7FFFU;
  std::uint32_t const sign = static_cast<std::uint32_t>(half & 0x8000U) << 16U;
  std::uint32_t const normal = (magnitude << 13U) + (112U << 23U);  // exponent bias 15 -> 127
  float const small =
      std::bit_cast<float>((magnitude << 13U) + (113U << 23U)) - 0x1.0p-14F;  // m * 2^-24
  std::uint32_t const special = (normal + (112U << 23U)) | (magnitude > 0x7C00U ? 0x40'0000U : 0U);
  std::uint32_t bits = magnitude < 0x0400U ? std::bit_cast<std::uint32_t>(small) : normal;
  bits = magnitude >= 0x7C00U ? special : bits;
  return std::bit_cast<float>(bits | sign);
}

/// float32 -> IEEE half, to nearest even; overflows to infinity, keeps NaN (quiet).
[[nodiscard]] constexpr std::uint16_t f32_to_f16(float value) noexcept {
  std::uint32_t const bits = std::bit_cast<std::uint32_t>(value);
  std::uint32_t const magnitude = bits & 0x7FFF'FFFFU;
  auto const sign = static_cast<std::uint32_t>((bits >> 16U) & 0x8000U);
  std::uint32_t half = 0;
  if (magnitude > 0x7F80'0000U) {
    half = 0x7E00U | ((magnitude >> 13U) & 0x03FFU);
  } else if (magnitude >= 0x477F'F000U) {  // 65520 and above round to infinity
    half = 0x7C00U;
  } else if (magnitude >= 0x3880'0000U) {
    half = (magnitude - (112U << 23U) + 0x0FFFU + ((magnitude >> 13U) & 1U)) >> 13U;
  } else {  // subnormal: adding 0.5 leaves the value in units of 2^-24 in the low bits, rounded to
            // nearest even
    half = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5F) - 0x3F00'0000U;
  }
  return static_cast<std::uint16_t>(half | sign);
}

/// bfloat16 -> float32; exact.
[[nodiscard]] constexpr float bf16_to_f32(std::uint16_t half) noexcept {
  return std::bit_cast<float>(static_cast<std::uint32_t>(half) << 16U);
}

/// float32 -> bfloat16, to nearest even; keeps NaN (quiet).
[[nodiscard]] constexpr std::uint16_t f32_to_bf16(float value) noexcept {
  std::uint32_t const bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7FFF'FFFFU) > 0x7F80'0000U) {
    return static_cast<std::uint16_t>((bits >> 16U) | 0x40U);
  }
  return static_cast<std::uint16_t>((bits + 0x7FFFU + ((bits >> 16U) & 1U)) >> 16U);
}

/// FP8 E4M3FN (sign, 4 exponent bits of bias 7, 3 mantissa bits; no infinity; 0x7F and 0xFF are
/// NaN) -> float32; exact.
[[nodiscard]] constexpr float e4m3_to_f32(std::uint8_t code) noexcept {
  std::uint32_t const magnitude = code & 0x7FU;
  std::uint32_t const sign = static_cast<std::uint32_t>(code & 0x80U) << 24U;
  float const small =
      std::bit_cast<float>((magnitude << 20U) + (121U << 23U)) - 0x1.0p-6F;  // m * 2^-9
  std::uint32_t bits =
      magnitude < 8U ? std::bit_cast<std::uint32_t>(small) : (magnitude << 20U) + (120U << 23U);
  bits = magnitude == 0x7FU ? 0x7FC0'0000U : bits;
  return std::bit_cast<float>(bits | sign);
}

/// Scale byte of an NVFP4 block: unsigned E4M3 where 0x00 and 0x7F mean zero and, other than these,
/// bit 7 is ignored by the exponent and 0xFF is 480, as the format's reference reads files that set
/// bits they should not.
[[nodiscard]] constexpr float ue4m3_to_f32(std::uint8_t code) noexcept {
  if (code == 0x7FU) { return 0.0F; }
  std::uint32_t const magnitude = code & 0x7FU;
  if (magnitude < 8U) { return static_cast<float>(magnitude) * 0x1.0p-9F; }
  return std::bit_cast<float>((magnitude << 20U) + (120U << 23U));
}

/// Half of the power of two an E8M0 byte stands for: 2^(code - 128); exact for all 256 codes, codes
/// 0 and 1 being subnormal. Half, because 2^(255 - 127) is above float32; pair it with doubled
/// element values. No code means NaN.
[[nodiscard]] constexpr float e8m0_half_to_f32(std::uint8_t code) noexcept {
  std::uint32_t const bits =
      code < 2U ? 0x0020'0000U << code : static_cast<std::uint32_t>(code - 1U) << 23U;
  return std::bit_cast<float>(bits);
}

/// Doubled E2M1 magnitudes (0, 0.5, 1, 1.5, 2, 3, 4, 6) and their negatives, by four-bit code.
inline constexpr std::int8_t e2m1_doubled[16] = {
    0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

}  // namespace terrace::quant
