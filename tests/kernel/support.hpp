// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/block.hpp>
#include <terrace/kernel/cpu/cpu.hpp>
#include <terrace/quant/decode.hpp>

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <span>
#include <vector>

namespace terrace::test {

using generator = std::mt19937;

[[nodiscard]] inline std::vector<float> random_floats(generator& random,
                                                      std::size_t n,
                                                      float deviation = 1.0F) {
  std::normal_distribution<float> draw{0.0F, deviation};
  std::vector<float> values(n);
  for (float& value : values) { value = draw(random); }
  return values;
}

/// A matrix that owns its bytes. The data starts at an odd address, as a file may have it.
struct matrix {
  matrix_view view;
  std::vector<std::byte> data;
  std::vector<std::byte> scales;
};

/// Types with an integer product, then types that are decoded, plain ones among them.
inline constexpr quant_type integer_types[] = {quant_type::q8_0,
                                               quant_type::q4_0,
                                               quant_type::q4_1,
                                               quant_type::q4_k,
                                               quant_type::q5_k,
                                               quant_type::q6_k,
                                               quant_type::iq4_nl,
                                               quant_type::iq4_xs,
                                               quant_type::mxfp4,
                                               quant_type::int4_g32,
                                               quant_type::mxfp4_packed};
inline constexpr quant_type float_types[] = {quant_type::f32,
                                             quant_type::f16,
                                             quant_type::bf16,
                                             quant_type::fp8_e4m3,
                                             quant_type::q5_0,
                                             quant_type::iq2_xxs,
                                             quant_type::q2_k,
                                             quant_type::nvfp4};

inline void put_half(std::byte* at, float value) {
  std::uint16_t const bits = quant::f32_to_f16(value);
  std::memcpy(at, &bits, sizeof bits);
}

/// Gives the scale fields of an encoded block of random bytes values around `scale`.
inline void set_scales(quant_type type, std::byte* block, float scale, generator& random) {
  float const d = scale * std::uniform_real_distribution<float>{0.5F, 1.5F}(random);
  switch (type) {
    case quant_type::f32:
      std::memcpy(block, &d, sizeof d);
      break;
    case quant_type::f16:
      put_half(block, std::normal_distribution<float>{0.0F, scale}(random));
      break;
    case quant_type::bf16: {
      std::uint16_t const bits =
          quant::f32_to_bf16(std::normal_distribution<float>{0.0F, scale}(random));
      std::memcpy(block, &bits, sizeof bits);
      break;
    }
    case quant_type::q8_0:
      put_half(block, d / 64);
      break;
    case quant_type::q4_0:
    case quant_type::q5_0:
      put_half(block, d / 4);
      break;
    case quant_type::q4_1:
      put_half(block, d / 4);
      put_half(block + 2, -2 * d);
      break;
    case quant_type::q4_k:
    case quant_type::q5_k:
      put_half(block, d / 128);
      put_half(block + 2, d / 64);
      break;
    case quant_type::q6_k:
      put_half(block + 208, d / 1024);
      break;
    case quant_type::q2_k:
      put_half(block + 80, d / 16);
      put_half(block + 82, d / 16);
      break;
    case quant_type::iq4_nl:
      put_half(block, d / 64);
      break;
    case quant_type::iq4_xs:
      put_half(block, d / 1024);
      break;
    case quant_type::iq2_xxs:
      put_half(block, d / 64);
      break;
    case quant_type::mxfp4:
      block[0] = static_cast<std::byte>(127 + std::ilogb(d));
      break;
    case quant_type::nvfp4:
      for (int i = 0; i < 4; ++i) { block[i] &= std::byte{0x3F}; }
      break;
    case quant_type::fp8_e4m3:
      if ((*block & std::byte{0x7F}) == std::byte{0x7F}) { *block = std::byte{0x38}; }  // no NaN
      break;
    default:
      break;
  }
}

/// Random codes under random scales around `scale`, in every encoded block.
[[nodiscard]] inline matrix random_matrix(
    quant_type type, std::size_t rows, std::size_t cols, generator& random, float scale = 0.1F) {
  matrix m;
  auto const traits = traits_of(type);
  std::size_t const bytes = rows * row_bytes(type, cols);
  m.data.resize(bytes + 1);
  for (auto& byte : m.data) { byte = static_cast<std::byte>(random()); }
  for (std::size_t at = 1; at < m.data.size(); at += traits.block_bytes) {
    set_scales(type, m.data.data() + at, scale, random);
  }
  m.view = {.type = type, .rows = rows, .cols = cols, .data = m.data.data() + 1};
  if (type == quant_type::int4_g32 || type == quant_type::mxfp4_packed) {
    bool const e8m0 = type == quant_type::mxfp4_packed;
    std::size_t const groups = rows * (cols / 32);
    m.scales.resize(groups * (e8m0 ? 1 : 2));
    for (std::size_t i = 0; i < groups; ++i) {
      float const d = scale / 4 * std::uniform_real_distribution<float>{0.5F, 1.5F}(random);
      if (e8m0) {
        m.scales[i] = static_cast<std::byte>(127 + std::ilogb(d));
      } else {
        std::uint16_t const bits = quant::f32_to_bf16(d);
        std::memcpy(m.scales.data() + 2 * i, &bits, sizeof bits);
      }
    }
    m.view.grid = scale_grid::per_group32;
    m.view.scale_type = e8m0 ? quant_type::i8 : quant_type::bf16;
    m.view.scales = m.scales.data();
  }
  return m;
}

/// Products of `w` with x [tokens, w.cols] on `threads` threads: [tokens, rows].
[[nodiscard]] inline std::vector<float> product(matrix_view const& w,
                                                numerics mode,
                                                std::vector<float> const& x,
                                                int threads) {
  kernel::cpu::thread_pool pool{threads};
  kernel::cpu::activations input;
  std::size_t const tokens = x.size() / w.cols;
  input.assign(pool, mode, x.data(), tokens, w.cols, w.cols);
  std::vector<float> y(tokens * w.rows);
  kernel::cpu::matmul(pool, w, input, y.data(), w.rows);
  return y;
}

/// Equal bits, so that NaN equals itself and 0 differs from -0.
[[nodiscard]] inline bool same_bits(std::span<float const> a, std::span<float const> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

}  // namespace terrace::test
