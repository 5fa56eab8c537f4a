// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/block.hpp>
#include <terrace/core/error.hpp>
#include <terrace/quant/formats.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>

namespace terrace::quant {

/// Decodes consecutive blocks of one type; types whose scales lie in another tensor come out
/// unscaled.
///
/// Shapes: data [elements / block_elements blocks], out [elements]; `elements` is a multiple of the type's block.
/// Errors: not_supported for a type without a format; contract_error for a partial block.
inline void decode_blocks(quant_type type,
                          std::byte const* data,
                          std::uint64_t elements,
                          float* out) {
  with_format(type, [&]<class Format>() {
    if (elements % Format::elements != 0) {
      throw contract_error{std::to_string(elements) + " elements of " + std::string{name_of(type)} +
                           " do not fill blocks of " + std::to_string(Format::elements)};
    }
    decode_run<Format>(data, elements / Format::elements, out);
  });
}

namespace detail {

/// Scale number `index` of a scale tensor. E8M0 bytes (`scale_type` i8) give half of their power of
/// two, which `apply_scales` makes up for, because the largest has no float32.
[[nodiscard]] inline float scale_at(matrix_view const& w, std::uint64_t index) {
  auto const read = [&]<class Number>(Number number) {
    std::memcpy(&number, w.scales + index * sizeof number, sizeof number);
    return number;
  };
  switch (w.scale_type) {
    case quant_type::f32:
      return read(float{});
    case quant_type::f16:
      return read(le_f16{}).value();
    case quant_type::bf16:
      return bf16_to_f32(read(le_u16{}).value());
    case quant_type::i8:
      return e8m0_half_to_f32(read(std::uint8_t{}));
    default:
      throw not_supported{"scales of type " + std::string{name_of(w.scale_type)} +
                          " are not among f32, f16, bf16 and E8M0; convert the scale tensor"};
  }
}

/// How many columns share a scale, and where the first scale of `row` lies.
struct scale_run {
  std::uint64_t columns;
  std::uint64_t first;
};
[[nodiscard]] inline scale_run scales_of(matrix_view const& w, std::uint64_t row) {
  switch (w.grid) {
    case scale_grid::per_row:
      return {w.cols, row};
    case scale_grid::per_block128:
      return {128, row / 128 * ((w.cols + 127) / 128)};
    case scale_grid::per_group32:
      return {32, row * (w.cols / 32)};
    case scale_grid::none:
    case scale_grid::per_tensor:
      break;
  }
  return {w.cols, 0};
}

/// Multiplies the codes of one row by their scales: the product of two exact numbers, rounded once.
inline void apply_scales(matrix_view const& w, std::uint64_t row, std::span<float> out) {
  auto const run = scales_of(w, row);
  float const unit = w.scale_type == quant_type::i8 ? 2.0F : 1.0F;
  std::uint64_t index = run.first;
  for (std::uint64_t begin = 0; begin < w.cols; begin += run.columns, ++index) {
    float const scale = scale_at(w, index);
    std::uint64_t const end = std::min(w.cols, begin + run.columns);
    for (std::uint64_t i = begin; i < end; ++i) { out[i] = unit * out[i] * scale; }
  }
}

}  // namespace detail

/// Decodes rows [first, first + count) of `w`, scales and multiplier applied.
///
/// Shapes: out [count, w.cols], row-major. The view's memory must hold the rows and scales it promises.
/// Errors: contract_error if rows or `out` disagree with the view, or a scale grid has no scales; not_supported for a
///         type without a format.
/// Cost:   one dispatch a call.
/// The bits are the same on every machine: each value is the exact product of code, scale and
/// offset rounded to float32 once (`multiplier` other than 1 rounds once more where a scale grid is
/// present).
inline void decode_rows(matrix_view const& w,
                        std::uint64_t first,
                        std::uint64_t count,
                        std::span<float> out) {
  if (first > w.rows || count > w.rows - first || out.size() != count * w.cols) {
    throw contract_error{"rows " + std::to_string(first) + " to " + std::to_string(first + count) +
                         " of a matrix [" + std::to_string(w.rows) + ", " + std::to_string(w.cols) +
                         "] cannot be decoded into " + std::to_string(out.size()) + " values"};
  }
  if (w.grid != scale_grid::none && w.scales == nullptr) {
    throw contract_error{"a matrix of " + std::string{name_of(w.type)} +
                         " has a scale grid but no scales"};
  }
  if (w.cols % traits_of(w.type).block_elements != 0) {
    throw contract_error{"rows of " + std::to_string(w.cols) + " columns are no whole number of " +
                         std::string{name_of(w.type)} + " blocks of " +
                         std::to_string(traits_of(w.type).block_elements)};
  }
  decode_blocks(w.type, w.data + first * row_bytes(w.type, w.cols), count * w.cols, out.data());
  if (w.grid != scale_grid::none) {
    for (std::uint64_t i = 0; i < count; ++i) {
      detail::apply_scales(w, first + i, out.subspan(i * w.cols, w.cols));
    }
  }
  if (w.multiplier != 1.0F) {
    for (float& value : out) { value *= w.multiplier; }
  }
}

/// Decodes one row of `w` into out [w.cols]; see `decode_rows`.
inline void decode_row(matrix_view const& w, std::uint64_t row, std::span<float> out) {
  decode_rows(w, row, 1, out);
}

}  // namespace terrace::quant
