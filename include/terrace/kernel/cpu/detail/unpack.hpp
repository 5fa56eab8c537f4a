// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/block.hpp>
#include <terrace/kernel/cpu/detail/int8_rows.hpp>
#include <terrace/quant/half.hpp>
#include <terrace/quant/int4_g32.hpp>
#include <terrace/quant/iq4_nl.hpp>
#include <terrace/quant/iq4_xs.hpp>
#include <terrace/quant/mxfp4.hpp>
#include <terrace/quant/mxfp4_packed.hpp>
#include <terrace/quant/q4_0.hpp>
#include <terrace/quant/q4_1.hpp>
#include <terrace/quant/q4_k.hpp>
#include <terrace/quant/q5_k.hpp>
#include <terrace/quant/q6_k.hpp>
#include <terrace/quant/q8_0.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>

/// The weight types with an integer product, brought to one form: unsigned codes in element order
/// and, for every 32 elements, float factors, such that  w = scale * (code - offset) + minimum.
namespace terrace::kernel::cpu::detail {

/// Rows that are unpacked and multiplied together.
inline constexpr std::size_t tile_rows = 4;

/// Where one encoded block goes. Factors of consecutive 32-element blocks lie `tile_rows` apart,
/// the four rows of a tile beside each other.
struct unpacked_block {
  std::uint8_t* codes;
  float* scale;       ///< of 32 elements, or of the first 16 when the type has two
  float* high_scale;  ///< of the last 16; only for types with `halves`
  float* minimum;     ///< only for types with `minimum`
};

[[nodiscard]] inline float to_float(quant::le_f16 half) noexcept {
#if defined(__F16C__)
  return _cvtsh_ss(half.bits.value());
#else
  return half.value();
#endif
}

/// Properties shared by the unpackers; each overrides what differs.
struct unpacker {
  static constexpr int offset_shift = -1;  ///< offset is 2^offset_shift; -1 means none
  static constexpr bool minimum = false;
  static constexpr bool halves = false;        ///< two scales for 32 elements
  static constexpr bool outer_scales = false;  ///< scales lie in another tensor
};

/// 16 bytes -> 32 codes: low nibbles first, then high nibbles (GGUF blocks of 32).
inline void split_nibbles(std::uint8_t const* bytes, std::uint8_t* codes) noexcept {
  for (int i = 0; i < 16; ++i) {
    codes[i] = bytes[i] & 15U;
    codes[i + 16] = bytes[i] >> 4U;
  }
}

/// 16 bytes -> 32 codes: element 2i in the low nibble of byte i (packed safetensors).
inline void spread_nibbles(std::uint8_t const* bytes, std::uint8_t* codes) noexcept {
  for (int i = 0; i < 16; ++i) {
    codes[2 * i] = bytes[i] & 15U;
    codes[2 * i + 1] = bytes[i] >> 4U;
  }
}

/// codes[i] = table[codes[i]] for 32 codes below 16.
inline void look_up(std::uint8_t const* table, std::uint8_t* codes) noexcept {
  for (int i = 0; i < 32; ++i) { codes[i] = table[codes[i]]; }
}

struct unpack_q8_0 : unpacker {
  using block = quant::q8_0;
  static constexpr int offset_shift = 7;
  static void unpack(block const& from, unpacked_block to) noexcept {
    for (int i = 0; i < 32; ++i) { to.codes[i] = static_cast<std::uint8_t>(from.qs[i]) ^ 0x80U; }
    *to.scale = to_float(from.d);
  }
};

struct unpack_q4_0 : unpacker {
  using block = quant::q4_0;
  static constexpr int offset_shift = 3;
  static void unpack(block const& from, unpacked_block to) noexcept {
    split_nibbles(from.qs, to.codes);
    *to.scale = to_float(from.d);
  }
};

struct unpack_q4_1 : unpacker {
  using block = quant::q4_1;
  static constexpr bool minimum = true;
  static void unpack(block const& from, unpacked_block to) noexcept {
    split_nibbles(from.qs, to.codes);
    *to.scale = to_float(from.d);
    *to.minimum = to_float(from.m);
  }
};

/// Factors of the eight sub-blocks of q4_k and q5_k.
inline void unpack_k_scales(float d,
                            float dmin,
                            quant::k_scales const& scales,
                            unpacked_block to) noexcept {
  for (unsigned j = 0; j < 8; ++j) {
    to.scale[tile_rows * j] = d * static_cast<float>(scales.scale(j));
    to.minimum[tile_rows * j] = -(dmin * static_cast<float>(scales.minimum(j)));
  }
}

struct unpack_q4_k : unpacker {
  using block = quant::q4_k;
  static constexpr bool minimum = true;
  static void unpack(block const& from, unpacked_block to) noexcept {
    for (int pair = 0; pair < 4; ++pair) {
      for (int i = 0; i < 32; ++i) {
        to.codes[64 * pair + i] = from.qs[32 * pair + i] & 15U;
        to.codes[64 * pair + 32 + i] = from.qs[32 * pair + i] >> 4U;
      }
    }
    unpack_k_scales(to_float(from.d), to_float(from.dmin), from.scales, to);
  }
};

struct unpack_q5_k : unpacker {
  using block = quant::q5_k;
  static constexpr bool minimum = true;
  static void unpack(block const& from, unpacked_block to) noexcept {
    for (unsigned j = 0; j < 8; ++j) {
      for (unsigned i = 0; i < 32; ++i) {
        unsigned const low = (from.qs[32 * (j / 2) + i] >> (4U * (j & 1U))) & 15U;
        to.codes[32 * j + i] = static_cast<std::uint8_t>(low | (((from.qh[i] >> j) & 1U) << 4U));
      }
    }
    unpack_k_scales(to_float(from.d), to_float(from.dmin), from.scales, to);
  }
};

struct unpack_q6_k : unpacker {
  using block = quant::q6_k;
  static constexpr int offset_shift = 5;
  static constexpr bool halves = true;
  static void unpack(block const& from, unpacked_block to) noexcept {
    float const d = to_float(from.d);
    for (unsigned j = 0; j < 8; ++j) {
      std::uint8_t const* const low = from.ql + 64 * (j / 4) + 32 * (j & 1U);
      std::uint8_t const* const high = from.qh + 32 * (j / 4);
      unsigned const low_shift = 4U * ((j / 2) & 1U);
      unsigned const high_shift = 2U * (j & 3U);
      for (unsigned i = 0; i < 32; ++i) {
        unsigned const code =
            ((low[i] >> low_shift) & 15U) | (((high[i] >> high_shift) & 3U) << 4U);
        to.codes[32 * j + i] = static_cast<std::uint8_t>(code);
      }
      to.scale[tile_rows * j] = d * static_cast<float>(from.scales[2 * j]);
      to.high_scale[tile_rows * j] = d * static_cast<float>(from.scales[2 * j + 1]);
    }
  }
};

/// Levels of the 4-bit types that are not evenly spaced, moved up by the offset so that they are
/// unsigned.
template <int Shift>
struct raised_levels {
  alignas(16) std::uint8_t code[16];
  constexpr explicit raised_levels(std::int8_t const (&levels)[16]) : code{} {
    for (int i = 0; i < 16; ++i) { code[i] = static_cast<std::uint8_t>(levels[i] + (1 << Shift)); }
  }
};
inline constexpr raised_levels<7> raised_iq4{quant::iq4_levels};
inline constexpr raised_levels<4> raised_e2m1{quant::e2m1_doubled};

struct unpack_iq4_nl : unpacker {
  using block = quant::iq4_nl;
  static constexpr int offset_shift = 7;
  static void unpack(block const& from, unpacked_block to) noexcept {
    split_nibbles(from.qs, to.codes);
    look_up(raised_iq4.code, to.codes);
    *to.scale = to_float(from.d);
  }
};

struct unpack_iq4_xs : unpacker {
  using block = quant::iq4_xs;
  static constexpr int offset_shift = 7;
  static void unpack(block const& from, unpacked_block to) noexcept {
    float const d = to_float(from.d);
    unsigned const high = from.scales_h.value();
    for (unsigned j = 0; j < 8; ++j) {
      split_nibbles(from.qs + 16 * j, to.codes + 32 * j);
      look_up(raised_iq4.code, to.codes + 32 * j);
      unsigned const low = (from.scales_l[j / 2] >> (4U * (j & 1U))) & 15U;
      int const code = static_cast<int>(low | (((high >> (2U * j)) & 3U) << 4U));
      to.scale[tile_rows * j] = d * static_cast<float>(code - 32);
    }
  }
};

struct unpack_mxfp4 : unpacker {
  using block = quant::mxfp4;
  static constexpr int offset_shift = 4;
  static void unpack(block const& from, unpacked_block to) noexcept {
    split_nibbles(from.qs, to.codes);
    look_up(raised_e2m1.code, to.codes);
    *to.scale = quant::e8m0_half_to_f32(from.e);
  }
};

struct unpack_int4_g32 : unpacker {
  using block = quant::int4_g32;
  static constexpr int offset_shift = 3;
  static constexpr bool outer_scales = true;
  static void unpack(block const& from, unpacked_block to) noexcept {
    spread_nibbles(from.qs, to.codes);
  }
};

struct unpack_mxfp4_packed : unpacker {
  using block = quant::mxfp4_packed;
  static constexpr int offset_shift = 4;
  static constexpr bool outer_scales = true;  // E8M0, which count as halves: the codes are doubled
  static void unpack(block const& from, unpacked_block to) noexcept {
    spread_nibbles(from.qs, to.codes);
    look_up(raised_e2m1.code, to.codes);
  }
};

/// Factor of block `b` of a row whose scales start at `scales`.
[[nodiscard]] inline float outer_scale(quant_type type,
                                       std::byte const* scales,
                                       std::size_t b) noexcept {
  std::uint16_t half = 0;
  if (type == quant_type::i8) {
    return quant::e8m0_half_to_f32(std::to_integer<std::uint8_t>(scales[b]));
  }
  if (type == quant_type::f32) {
    float scale = 0;
    std::memcpy(&scale, scales + b * sizeof scale, sizeof scale);
    return scale;
  }
  std::memcpy(&half, scales + b * sizeof half, sizeof half);
  return type == quant_type::bf16 ? quant::bf16_to_f32(half) : quant::f16_to_f32(half);
}

/// Calls `visit.template operator()<Unpacker>()` when `w` has an integer product, else `other()`.
template <class Visit, class Other>
decltype(auto) with_unpacker(matrix_view const& w, Visit&& visit, Other&& other) {
  if (w.multiplier != 1.0F || w.cols % block_cols != 0) { return other(); }
  bool const own_scales = w.grid == scale_grid::none;
  bool const group_scales = w.grid == scale_grid::per_group32;
  switch (w.type) {
    case quant_type::q8_0:
      return own_scales ? visit.template operator()<unpack_q8_0>() : other();
    case quant_type::q4_0:
      return own_scales ? visit.template operator()<unpack_q4_0>() : other();
    case quant_type::q4_1:
      return own_scales ? visit.template operator()<unpack_q4_1>() : other();
    case quant_type::q4_k:
      return own_scales ? visit.template operator()<unpack_q4_k>() : other();
    case quant_type::q5_k:
      return own_scales ? visit.template operator()<unpack_q5_k>() : other();
    case quant_type::q6_k:
      return own_scales ? visit.template operator()<unpack_q6_k>() : other();
    case quant_type::iq4_nl:
      return own_scales ? visit.template operator()<unpack_iq4_nl>() : other();
    case quant_type::iq4_xs:
      return own_scales ? visit.template operator()<unpack_iq4_xs>() : other();
    case quant_type::mxfp4:
      return own_scales ? visit.template operator()<unpack_mxfp4>() : other();
    case quant_type::int4_g32:
      return group_scales && w.scale_type != quant_type::i8
                 ? visit.template operator()<unpack_int4_g32>()
                 : other();
    case quant_type::mxfp4_packed:
      return group_scales && w.scale_type == quant_type::i8
                 ? visit.template operator()<unpack_mxfp4_packed>()
                 : other();
    default:
      return other();
  }
}

}  // namespace terrace::kernel::cpu::detail
