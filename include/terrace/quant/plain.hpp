// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/quant/block_format.hpp>

#include <bit>
#include <concepts>
#include <cstdint>
#include <cstring>
#include <limits>

namespace terrace::quant {

/// One stored number; decoding rounds once where float32 is narrower.
template <quant_type Type, class Number>
struct plain {
  std::uint8_t bytes[sizeof(Number)];  ///< little endian

  static constexpr quant_type type = Type;
  static constexpr std::uint32_t elements = 1;

  void decode(float* __restrict y) const noexcept {
    static_assert(std::endian::native == std::endian::little,
                  "plain numbers are read in place: little-endian machines only");
    Number value;
    std::memcpy(&value, bytes, sizeof value);
    *y = static_cast<float>(value);
  }

  static constexpr float max_magnitude = std::numeric_limits<float>::max();
  [[nodiscard]] static plain encode(float const* x) noexcept
    requires std::floating_point<Number>
  {
    auto const value = static_cast<Number>(*x);
    plain block;
    std::memcpy(block.bytes, &value, sizeof value);
    return block;
  }
};

using f32 = plain<quant_type::f32, float>;
using f64 = plain<quant_type::f64, double>;
using i8 = plain<quant_type::i8, std::int8_t>;
using i16 = plain<quant_type::i16, std::int16_t>;
using i32 = plain<quant_type::i32, std::int32_t>;
using i64 = plain<quant_type::i64, std::int64_t>;

/// One IEEE half-precision number.
struct f16 {
  le_u16 bits;

  static constexpr quant_type type = quant_type::f16;
  static constexpr std::uint32_t elements = 1;

  void decode(float* __restrict y) const noexcept { *y = f16_to_f32(bits.value()); }

  static constexpr float max_magnitude = 65504.0F;
  [[nodiscard]] static f16 encode(float const* x) noexcept { return {le_u16::of(f32_to_f16(*x))}; }
};

/// One bfloat16 number: the upper half of a float32.
struct bf16 {
  le_u16 bits;

  static constexpr quant_type type = quant_type::bf16;
  static constexpr std::uint32_t elements = 1;

  void decode(float* __restrict y) const noexcept { *y = bf16_to_f32(bits.value()); }

  static constexpr float max_magnitude = 0x1.FEp127F;
  [[nodiscard]] static bf16 encode(float const* x) noexcept {
    return {le_u16::of(f32_to_bf16(*x))};
  }
};

static_assert(encodable_format<f32> && encodable_format<f64>);
static_assert(encodable_format<f16> && encodable_format<bf16>);
static_assert(block_format<i8> && block_format<i16> && block_format<i32> && block_format<i64>);

}  // namespace terrace::quant
