// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/block.hpp>
#include <terrace/quant/decode.hpp>

#include <kernel_cuda/numbers.hpp>
#include <kernel_cuda/support.hpp>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <random>
#include <vector>

namespace terrace::test {

/// Where a block of random bytes keeps half-precision factors, and how large the codes they
/// multiply are on the whole.
struct block_factors {
  quant_type type;
  std::vector<std::size_t> halves;
  float codes;
};
[[nodiscard]] inline std::vector<block_factors> const& known_factors() {
  static std::vector<block_factors> const all{
      {quant_type::q4_0, {0}, 4},       {quant_type::q4_1, {0, 2}, 8},
      {quant_type::q5_0, {0}, 8},       {quant_type::q5_1, {0, 2}, 16},
      {quant_type::q8_0, {0}, 64},      {quant_type::q8_1, {0, 2}, 64},
      {quant_type::q2_k, {80, 82}, 12}, {quant_type::q3_k, {108}, 40},
      {quant_type::q4_k, {0, 2}, 240},  {quant_type::q5_k, {0, 2}, 480},
      {quant_type::q6_k, {208}, 1000},  {quant_type::iq2_xxs, {0}, 40},
      {quant_type::iq2_xs, {0}, 40},    {quant_type::iq2_s, {0}, 40},
      {quant_type::iq3_xxs, {0}, 120},  {quant_type::iq3_s, {0}, 120},
      {quant_type::iq1_s, {0}, 8},      {quant_type::iq4_nl, {0}, 64},
      {quant_type::iq4_xs, {0}, 1000},  {quant_type::tq1_0, {52}, 1},
      {quant_type::tq2_0, {64}, 1},     {quant_type::q1_0, {0}, 1},
      {quant_type::q2_0, {0}, 1}};
  return all;
}

/// Turns a block of random bytes into one whose values are around `scale`.
inline void tame(quant_type type, std::byte* block, float scale, generator& random) {
  float const d = scale * std::uniform_real_distribution<float>{0.5F, 1.5F}(random);
  float const value = std::normal_distribution<float>{0.0F, scale}(random);
  auto const put = [&](std::size_t at, auto number) {
    std::memcpy(block + at, &number, sizeof number);
  };
  for (auto const& known : known_factors()) {
    if (known.type != type) { continue; }
    for (std::size_t const at : known.halves) { put(at, quant::f32_to_f16(d / known.codes)); }
    return;
  }
  switch (type) {
    case quant_type::f32:
      return put(0, value);
    case quant_type::f16:
      return put(0, quant::f32_to_f16(value));
    case quant_type::bf16:
      return put(0, quant::f32_to_bf16(value));
    case quant_type::f64:
      return put(0, double{value} * 1.0000001);
    case quant_type::q8_k:
      return put(0, d / 64);
    case quant_type::mxfp4:
      return put(0, static_cast<std::uint8_t>(126 + std::ilogb(d)));
    case quant_type::nvfp4:
      for (int i = 0; i < 4; ++i) { block[i] &= std::byte{0x3F}; }
      return;
    case quant_type::fp8_e4m3:
      if ((*block & std::byte{0x7F}) == std::byte{0x7F}) { *block = std::byte{0x38}; }  // no NaN
      return;
    case quant_type::iq1_m: {  // the factor is spelled by the top nibbles of four words
      std::uint32_t const bits = quant::f32_to_f16(d / 8);
      for (unsigned w = 0; w < 4; ++w) {
        auto& top = block[48 + 2 * w + 1];
        top = (top & std::byte{0x0F}) | static_cast<std::byte>(((bits >> (4 * w)) & 15U) << 4U);
      }
      return;
    }
    default:
      return;
  }
}

/// How the scales outside a matrix are made.
struct scale_choice {
  scale_grid grid = scale_grid::none;
  quant_type type = quant_type::f32;
};
/// What files of the type come with.
[[nodiscard]] inline scale_choice usual_scales(quant_type type) {
  switch (type) {
    case quant_type::int4_g32:
      return {scale_grid::per_group32, quant_type::bf16};
    case quant_type::mxfp4_packed:
      return {scale_grid::per_group32, quant_type::i8};
    case quant_type::fp8_e4m3:
      return {scale_grid::per_block128, quant_type::f32};
    default:
      return {};
  }
}

[[nodiscard]] inline std::size_t scales_in(scale_grid grid, std::size_t rows, std::size_t cols) {
  switch (grid) {
    case scale_grid::none:
      return 0;
    case scale_grid::per_tensor:
      return 1;
    case scale_grid::per_row:
      return rows;
    case scale_grid::per_block128:
      return (rows + 127) / 128 * ((cols + 127) / 128);
    case scale_grid::per_group32:
      return rows * (cols / 32);
  }
  return 0;
}

/// Bytes of a matrix, first the elements, then its scales, and how they lie.
struct matrix_bytes {
  matrix_layout layout;
  std::vector<std::byte> bytes;

  [[nodiscard]] matrix_view view() const { return view_at(layout, bytes.data()); }
};

/// Random codes under factors that keep values around `scale`, or any bytes when there is none.
/// Elements begin `offset` bytes into the block.
[[nodiscard]] inline matrix_bytes random_matrix(quant_type type,
                                                std::size_t rows,
                                                std::size_t cols,
                                                generator& random,
                                                std::optional<float> scale,
                                                scale_choice outer,
                                                std::size_t offset = 1) {
  matrix_bytes made{.layout = {.type = type, .rows = rows, .cols = cols, .data_offset = offset},
                    .bytes = {}};
  std::size_t const bytes = rows * row_bytes(type, cols);
  std::size_t const width = traits_of(outer.type).block_bytes;
  std::size_t const scales = scales_in(outer.grid, rows, cols);
  made.bytes.resize(offset + bytes + scales * width);
  for (std::byte& byte : made.bytes) { byte = static_cast<std::byte>(random()); }
  for (std::size_t at = 0; scale && at < bytes; at += traits_of(type).block_bytes) {
    tame(type, made.bytes.data() + offset + at, *scale, random);
  }
  if (outer.grid == scale_grid::none) { return made; }
  made.layout.grid = outer.grid;
  made.layout.scale_type = outer.type;
  made.layout.scale_offset = offset + bytes;
  for (std::size_t i = 0; scale && i < scales; ++i) {
    std::byte* const at = made.bytes.data() + offset + bytes + i * width;
    if (outer.type == quant_type::i8) {
      *at = static_cast<std::byte>(126 + std::ilogb(*scale));
    } else {
      tame(outer.type, at, *scale / 4, random);
    }
  }
  return made;
}
[[nodiscard]] inline matrix_bytes random_matrix(
    quant_type type, std::size_t rows, std::size_t cols, generator& random, float scale = 0.1F) {
  return random_matrix(type, rows, cols, random, scale, usual_scales(type));
}

/// A block on the device, with room for the words that hold its last bytes.
class device_block {
 public:
  device_block(test_device const& device, std::vector<std::byte> bytes)
      : memory_{device.upload(padded(std::move(bytes)))} {}
  [[nodiscard]] std::byte const* data() const { return memory_.data(); }

 private:
  static std::vector<std::byte> padded(std::vector<std::byte> bytes) {
    bytes.resize((bytes.size() + 31) / 16 * 16);
    return bytes;
  }
  device_array<std::byte> memory_;
};

[[nodiscard]] inline std::vector<float> decoded(matrix_view const& w) {
  std::vector<float> values(w.rows * w.cols);
  quant::decode_rows(w, 0, w.rows, values);
  return values;
}

/// Values whose bits differ, NaN being like any other NaN.
[[nodiscard]] inline std::size_t differences(std::vector<float> const& a,
                                             std::vector<float> const& b) {
  std::size_t count = a.size() == b.size() ? 0 : 1;
  for (std::size_t i = 0; i < a.size() && i < b.size(); ++i) {
    bool const nan = std::isnan(a[i]) && std::isnan(b[i]);
    count += nan || std::memcmp(&a[i], &b[i], sizeof(float)) == 0 ? 0 : 1;
  }
  return count;
}

/// A column count near `cols` that rows of the type can have.
[[nodiscard]] inline std::size_t fitting_cols(quant_type type, std::size_t cols) {
  std::size_t const block = traits_of(type).block_elements;
  return (cols + block - 1) / block * block;
}

}  // namespace terrace::test
