// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/kernel/cpu/detail/block_factors.hpp>
#include <terrace/kernel/cpu/detail/nibbles.hpp>
#include <terrace/kernel/cpu/detail/unpacked.hpp>
#include <terrace/quant/int4_g32.hpp>
#include <terrace/quant/iq4_nl.hpp>
#include <terrace/quant/mxfp4.hpp>
#include <terrace/quant/mxfp4_packed.hpp>
#include <terrace/quant/q4_0.hpp>
#include <terrace/quant/q4_1.hpp>
#include <terrace/quant/q8_0.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>

/// Types whose blocks hold 32 elements.
namespace terrace::kernel::cpu::detail {

struct unpack_q8_0 : unpacker {
  using block = quant::q8_0;
  static constexpr int offset_shift = 7;
  static void unpack(encoded_run run, unpacked_run to) noexcept {
    for_each_group(run.count, [&](std::size_t first, std::size_t count) {
      block const* const from = run.as<block>() + first;
      flip_signs(from, count, to.codes + 32 * first);
      unpack_scales(from, count, to.scale + first);
    });
  }

 private:
  static void flip_signs(block const* from, std::size_t count, std::uint8_t* codes) noexcept {
    std::size_t b = 0;
#if defined(__AVX512F__)
    __m512i const flip = _mm512_set1_epi32(static_cast<int>(0x80808080U));
    auto const load = [&](std::size_t at) {
      return _mm256_loadu_si256(reinterpret_cast<__m256i const*>(from[at].qs));
    };
    for (; b + 2 <= count; b += 2) {
      prefetch_ahead<2 * sizeof(block)>(from + b);
      __m512i const two = _mm512_inserti64x4(_mm512_castsi256_si512(load(b)), load(b + 1), 1);
      _mm512_storeu_si512(codes + 32 * b, _mm512_xor_si512(two, flip));
    }
#endif
    for (; b < count; ++b) {
      for (std::size_t i = 0; i < 32; ++i) {
        codes[32 * b + i] = static_cast<std::uint8_t>(from[b].qs[i]) ^ 0x80U;
      }
    }
  }
};

struct unpack_q4_0 : unpacker {
  using block = quant::q4_0;
  static constexpr int offset_shift = 3;
  static void unpack(encoded_run run, unpacked_run to) noexcept {
    for_each_group(run.count, [&](std::size_t first, std::size_t count) {
      block const* const from = run.as<block>() + first;
      split_nibbles<plain_levels, sizeof(block)>(from->qs, count, to.codes + 32 * first);
      unpack_scales(from, count, to.scale + first);
    });
  }
};

struct unpack_q4_1 : unpacker {
  using block = quant::q4_1;
  static constexpr bool minimum = true;
  static void unpack(encoded_run run, unpacked_run to) noexcept {
    for_each_group(run.count, [&](std::size_t first, std::size_t count) {
      block const* const from = run.as<block>() + first;
      split_nibbles<plain_levels, sizeof(block)>(from->qs, count, to.codes + 32 * first);
#if defined(__AVX512F__)
      __m512i const heads = gather_heads<sizeof(block)>(from, count);
      low_halves(heads).store_first(to.scale + first, count);
      low_halves(_mm512_srli_epi32(heads, 16)).store_first(to.minimum + first, count);
#else
      for (std::size_t b = 0; b < count; ++b) {
        to.scale[first + b] = to_float(from[b].d);
        to.minimum[first + b] = to_float(from[b].m);
      }
#endif
    });
  }
};

struct unpack_iq4_nl : unpacker {
  using block = quant::iq4_nl;
  static constexpr int offset_shift = 7;
  static void unpack(encoded_run run, unpacked_run to) noexcept {
    for_each_group(run.count, [&](std::size_t first, std::size_t count) {
      block const* const from = run.as<block>() + first;
      split_nibbles<iq4_codes, sizeof(block)>(from->qs, count, to.codes + 32 * first);
      unpack_scales(from, count, to.scale + first);
    });
  }
};

struct unpack_mxfp4 : unpacker {
  using block = quant::mxfp4;
  static constexpr int offset_shift = 4;
  static void unpack(encoded_run run, unpacked_run to) noexcept {
    for_each_group(run.count, [&](std::size_t first, std::size_t count) {
      block const* const from = run.as<block>() + first;
      split_nibbles<e2m1_codes, sizeof(block)>(from->qs, count, to.codes + 32 * first);
#if defined(__AVX512F__)
      __m512i const heads = gather_heads<sizeof(block)>(from, count);
      e8m0_halves(_mm512_and_si512(heads, _mm512_set1_epi32(255)))
          .store_first(to.scale + first, count);
#else
      for (std::size_t b = 0; b < count; ++b) { to.scale[first + b] = quant::e8m0_half_to_f32(from[b].e); }
#endif
    });
  }
};

/// Scales of a run that lie in another tensor. E8M0 bytes count as halves, for their codes are
/// doubled.
inline void unpack_outer_scales(encoded_run run, float* scale) noexcept {
  if (run.scale_type == quant_type::i8) {
    std::size_t b = 0;
#if defined(__AVX512F__)
    for (; b + 16 <= run.count; b += 16) {
      auto const* const codes = reinterpret_cast<__m128i const*>(run.scales + b);
      e8m0_halves(_mm512_cvtepu8_epi32(_mm_loadu_si128(codes))).store(scale + b);
    }
#endif
    for (; b < run.count; ++b) {
      scale[b] = quant::e8m0_half_to_f32(std::to_integer<std::uint8_t>(run.scales[b]));
    }
  } else if (run.scale_type == quant_type::f32) {
    std::memcpy(scale, run.scales, run.count * sizeof(float));
  } else {
    bool const brain = run.scale_type == quant_type::bf16;
    for (std::size_t b = 0; b < run.count; ++b) {
      std::uint16_t half = 0;
      std::memcpy(&half, run.scales + b * sizeof half, sizeof half);
      scale[b] = brain ? quant::bf16_to_f32(half) : quant::f16_to_f32(half);
    }
  }
}

struct unpack_int4_g32 : unpacker {
  using block = quant::int4_g32;
  static constexpr int offset_shift = 3;
  static constexpr bool outer_scales = true;
  static void unpack(encoded_run run, unpacked_run to) noexcept {
    spread_nibbles<plain_levels>(run.as<block>()->qs, run.count, to.codes);
    unpack_outer_scales(run, to.scale);
  }
};

struct unpack_mxfp4_packed : unpacker {
  using block = quant::mxfp4_packed;
  static constexpr int offset_shift = 4;
  static constexpr bool outer_scales = true;
  static void unpack(encoded_run run, unpacked_run to) noexcept {
    spread_nibbles<e2m1_codes>(run.as<block>()->qs, run.count, to.codes);
    unpack_outer_scales(run, to.scale);
  }
};

}  // namespace terrace::kernel::cpu::detail
