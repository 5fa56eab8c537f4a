// SPDX-License-Identifier: Apache-2.0
#include <terrace/quant/half.hpp>

#include <catch2/catch_test_macros.hpp>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace quant = terrace::quant;

namespace {

/// sign * mantissa * 2^exponent of a small format, by the definition of IEEE numbers.
double by_definition(unsigned code, int exponent_bits, int mantissa_bits, int bias) {
  unsigned const mantissa = code & ((1U << mantissa_bits) - 1U);
  int const exponent = static_cast<int>((code >> mantissa_bits) & ((1U << exponent_bits) - 1U));
  bool const negative = ((code >> (mantissa_bits + exponent_bits)) & 1U) != 0;
  double const fraction = mantissa + (exponent == 0 ? 0.0 : std::ldexp(1.0, mantissa_bits));
  double const value = std::ldexp(fraction, (exponent == 0 ? 1 : exponent) - bias - mantissa_bits);
  return negative ? -value : value;
}

bool same_bits(float a, float b) {
  return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
}

}  // namespace

TEST_CASE("every half-precision code decodes to its number and back", "[quant]") {
  for (unsigned code = 0; code < 0x10000; ++code) {
    auto const half = static_cast<std::uint16_t>(code);
    float const value = quant::f16_to_f32(half);
    INFO("code " << code);
    if ((code & 0x7FFFU) > 0x7C00U) {
      REQUIRE(std::isnan(value));
      REQUIRE(quant::f32_to_f16(value) == (half | 0x0200U));
      continue;
    }
    bool const infinite = (code & 0x7FFFU) == 0x7C00U;
    float const sign = code >= 0x8000U ? -1.0F : 1.0F;
    float const expected = infinite ? sign * std::numeric_limits<float>::infinity()
                                    : static_cast<float>(by_definition(code, 5, 10, 15));
    REQUIRE(same_bits(value, expected));
    REQUIRE(quant::f32_to_f16(value) == half);
  }
}

TEST_CASE("float32 rounds to the nearest half, ties to the even one", "[quant]") {
  for (unsigned code = 0; code < 0x7BFF; ++code) {
    auto const half = static_cast<std::uint16_t>(code);
    auto const next = static_cast<std::uint16_t>(code + 1);
    float const low = quant::f16_to_f32(half);
    float const high = quant::f16_to_f32(next);
    float const middle = low + (high - low) / 2;
    INFO("between codes " << code << " and " << code + 1);
    REQUIRE(quant::f32_to_f16(std::nextafter(middle, low)) == half);
    REQUIRE(quant::f32_to_f16(std::nextafter(middle, high)) == next);
    REQUIRE(quant::f32_to_f16(middle) == ((code & 1U) != 0 ? next : half));
    REQUIRE(quant::f32_to_f16(-middle) == (0x8000U | ((code & 1U) != 0 ? next : half)));
  }
  CHECK(quant::f32_to_f16(65519.0F) == 0x7BFF);
  CHECK(quant::f32_to_f16(65520.0F) == 0x7C00);
  CHECK(quant::f32_to_f16(3e38F) == 0x7C00);
  CHECK(quant::f32_to_f16(1e-45F) == 0);
}

TEST_CASE("bfloat16 is the rounded upper half of float32", "[quant]") {
  CHECK(quant::bf16_to_f32(0x3F80) == 1.0F);
  CHECK(quant::bf16_to_f32(0x0001) == std::ldexp(1.0F, -133));
  CHECK(quant::f32_to_bf16(1.0F + 0x1.0p-8F) == 0x3F80);  // tie, to even
  CHECK(quant::f32_to_bf16(1.0F + 0x1.8p-7F) == 0x3F82);  // tie, to even
  CHECK(quant::f32_to_bf16(1.0F + 0x1.0p-8F + 0x1.0p-20F) == 0x3F81);
  CHECK(quant::f32_to_bf16(std::numeric_limits<float>::infinity()) == 0x7F80);
  CHECK(quant::f32_to_bf16(std::bit_cast<float>(0x7F800001U)) == 0x7FC0);  // NaN stays NaN
  CHECK(quant::f32_to_bf16(std::bit_cast<float>(0xFFFFFFFFU)) == 0xFFFF);
}

TEST_CASE("all 256 FP8 E4M3 codes decode to their numbers", "[quant]") {
  for (unsigned code = 0; code < 256; ++code) {
    float const value = quant::e4m3_to_f32(static_cast<std::uint8_t>(code));
    INFO("code " << code);
    if ((code & 0x7FU) == 0x7FU) {
      CHECK(std::isnan(value));
    } else {
      CHECK(same_bits(value, static_cast<float>(by_definition(code, 4, 3, 7))));
    }
  }
  CHECK(quant::e4m3_to_f32(0x7E) == 448.0F);
  CHECK(quant::e4m3_to_f32(0x01) == std::ldexp(1.0F, -9));
}

TEST_CASE("NVFP4 scale codes ignore the sign bit except where the format defines zero", "[quant]") {
  for (unsigned code = 0; code < 256; ++code) {
    float const expected =
        code == 0x7F ? 0.0F : static_cast<float>(by_definition(code & 0x7FU, 4, 3, 7));
    INFO("code " << code);
    CHECK(same_bits(quant::ue4m3_to_f32(static_cast<std::uint8_t>(code)), expected));
  }
  CHECK(quant::ue4m3_to_f32(0xFF) == 480.0F);
}

TEST_CASE("all 256 E8M0 codes are half their power of two, subnormal ones included", "[quant]") {
  for (int code = 0; code < 256; ++code) {
    INFO("code " << code);
    CHECK(same_bits(quant::e8m0_half_to_f32(static_cast<std::uint8_t>(code)),
                    std::ldexp(1.0F, code - 128)));
  }
}
