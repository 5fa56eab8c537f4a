// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace terrace {

/// Element encodings. Values below 256 are GGUF type ids; the others are encodings of safetensors
/// checkpoints whose scales live in tensors of their own (see `matrix_layout`).
enum class quant_type : std::uint32_t {
  f32 = 0,
  f16 = 1,
  q4_0 = 2,
  q4_1 = 3,
  q5_0 = 6,
  q5_1 = 7,
  q8_0 = 8,
  q8_1 = 9,
  q2_k = 10,
  q3_k = 11,
  q4_k = 12,
  q5_k = 13,
  q6_k = 14,
  q8_k = 15,
  iq2_xxs = 16,
  iq2_xs = 17,
  iq3_xxs = 18,
  iq1_s = 19,
  iq4_nl = 20,
  iq3_s = 21,
  iq2_s = 22,
  iq4_xs = 23,
  i8 = 24,
  i16 = 25,
  i32 = 26,
  i64 = 27,
  f64 = 28,
  iq1_m = 29,
  bf16 = 30,
  tq1_0 = 34,
  tq2_0 = 35,
  mxfp4 = 39,
  nvfp4 = 40,
  q1_0 = 41,
  q2_0 = 42,
  fp8_e4m3 = 256,  ///< one byte an element; scale per tensor, row or 128x128 block
  int4_g32 = 257,  ///< compressed-tensors pack-quantized: int32 words of eight nibbles, scale per
                   ///< 32 columns
  mxfp4_packed = 258,  ///< compressed-tensors mxfp4-pack-quantized: two nibbles a byte, E8M0 scale
                       ///< per 32 columns
};

/// Facts about one encoding. `block_bytes` counts the element data only, never scales kept in other
/// tensors.
struct quant_traits {
  quant_type type;
  std::string_view name;         ///< lower case, as in reports and on the command line
  std::uint32_t block_elements;  ///< elements along a row that are encoded together
  std::uint32_t block_bytes;
};

inline constexpr std::array<quant_traits, 38> quant_table{{
    {quant_type::f32, "f32", 1, 4},
    {quant_type::f16, "f16", 1, 2},
    {quant_type::bf16, "bf16", 1, 2},
    {quant_type::f64, "f64", 1, 8},
    {quant_type::i8, "i8", 1, 1},
    {quant_type::i16, "i16", 1, 2},
    {quant_type::i32, "i32", 1, 4},
    {quant_type::i64, "i64", 1, 8},
    {quant_type::q4_0, "q4_0", 32, 18},
    {quant_type::q4_1, "q4_1", 32, 20},
    {quant_type::q5_0, "q5_0", 32, 22},
    {quant_type::q5_1, "q5_1", 32, 24},
    {quant_type::q8_0, "q8_0", 32, 34},
    {quant_type::q8_1, "q8_1", 32, 36},
    {quant_type::q2_k, "q2_k", 256, 84},
    {quant_type::q3_k, "q3_k", 256, 110},
    {quant_type::q4_k, "q4_k", 256, 144},
    {quant_type::q5_k, "q5_k", 256, 176},
    {quant_type::q6_k, "q6_k", 256, 210},
    {quant_type::q8_k, "q8_k", 256, 292},
    {quant_type::iq2_xxs, "iq2_xxs", 256, 66},
    {quant_type::iq2_xs, "iq2_xs", 256, 74},
    {quant_type::iq3_xxs, "iq3_xxs", 256, 98},
    {quant_type::iq1_s, "iq1_s", 256, 50},
    {quant_type::iq4_nl, "iq4_nl", 32, 18},
    {quant_type::iq3_s, "iq3_s", 256, 110},
    {quant_type::iq2_s, "iq2_s", 256, 82},
    {quant_type::iq4_xs, "iq4_xs", 256, 136},
    {quant_type::iq1_m, "iq1_m", 256, 56},
    {quant_type::tq1_0, "tq1_0", 256, 54},
    {quant_type::tq2_0, "tq2_0", 256, 66},
    {quant_type::mxfp4, "mxfp4", 32, 17},
    {quant_type::nvfp4, "nvfp4", 64, 36},
    {quant_type::q1_0, "q1_0", 128, 18},
    {quant_type::q2_0, "q2_0", 64, 18},
    {quant_type::fp8_e4m3, "fp8_e4m3", 1, 1},
    {quant_type::int4_g32, "int4_g32", 32, 16},
    {quant_type::mxfp4_packed, "mxfp4_packed", 32, 16},
}};

/// Traits of `type`, or nothing for an id terrace does not know (removed or foreign GGUF ids among
/// them).
[[nodiscard]] constexpr std::optional<quant_traits> find_traits(quant_type type) noexcept {
  for (auto const& entry : quant_table) {
    if (entry.type == type) { return entry; }
  }
  return std::nullopt;
}
/// Traits of a type that is known to be in the table.
[[nodiscard]] constexpr quant_traits traits_of(quant_type type) noexcept {
  return find_traits(type).value_or(quant_traits{type, "unknown", 1, 0});
}
[[nodiscard]] constexpr std::string_view name_of(quant_type type) noexcept {
  return traits_of(type).name;
}
[[nodiscard]] constexpr std::optional<quant_type> quant_type_named(std::string_view name) noexcept {
  for (auto const& entry : quant_table) {
    if (entry.name == name) { return entry.type; }
  }
  return std::nullopt;
}
/// Bytes of one row of `columns` elements; `columns` must be a multiple of the type's block.
[[nodiscard]] constexpr std::uint64_t row_bytes(quant_type type, std::uint64_t columns) noexcept {
  auto const traits = traits_of(type);
  return columns / traits.block_elements * traits.block_bytes;
}

}  // namespace terrace
