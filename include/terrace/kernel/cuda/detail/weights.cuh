// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/block.hpp>
#include <terrace/core/error.hpp>
#include <terrace/kernel/cuda/detail/octet.cuh>
#include <terrace/kernel/cuda/detail/octets_32.cuh>
#include <terrace/kernel/cuda/detail/octets_iq.cuh>
#include <terrace/kernel/cuda/detail/octets_k.cuh>
#include <terrace/kernel/cuda/detail/octets_ternary.cuh>
#include <terrace/kernel/cuda/detail/outer_scales.cuh>
#include <terrace/kernel/cuda/detail/plain_values.cuh>

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>

namespace terrace::kernel::cuda::detail {

/// A matrix as a kernel for its type reads it.
struct weights {
  std::byte const* data;
  std::uint64_t rows;
  std::uint32_t cols;
  outer_scales scales;
};

/// Errors: contract_error when rows are no whole blocks, a scale grid has no scales or does not fit
///         the columns, or rows are longer than kernels count; not_supported for a type that is not
///         in quant_table and for scales of other types.
inline void check_layout(matrix_layout const& w, bool has_scales) {
  if (!find_traits(w.type)) {
    throw not_supported{
        "elements of type " + std::to_string(static_cast<std::uint32_t>(w.type)) +
        " cannot be decoded; convert the tensor to a type that `quant_table` lists"};
  }
  auto const traits = traits_of(w.type);
  std::string const name{traits.name};
  if (w.cols % traits.block_elements != 0) {
    throw contract_error{"rows of " + std::to_string(w.cols) + " columns are no whole number of " +
                         name + " blocks of " + std::to_string(traits.block_elements)};
  }
  if (w.cols >= std::uint64_t{1} << 31U) {
    throw contract_error{"rows of " + std::to_string(w.cols) +
                         " columns are longer than kernels count"};
  }
  if (w.grid == scale_grid::none) { return; }
  if (!has_scales) {
    throw contract_error{"a matrix of " + name + " has a scale grid but no scales"};
  }
  if (w.grid == scale_grid::per_group32 && w.cols % 32 != 0) {
    throw contract_error{"rows of " + std::to_string(w.cols) +
                         " columns are no whole number of groups of 32, each under a scale"};
  }
  bool const known = w.scale_type == quant_type::f32 || w.scale_type == quant_type::f16 ||
                     w.scale_type == quant_type::bf16 || w.scale_type == quant_type::i8;
  if (!known) {
    throw not_supported{"scales of type " + std::string{name_of(w.scale_type)} +
                        " are not among f32, f16, bf16 and E8M0; convert the scale tensor"};
  }
}

[[nodiscard]] inline matrix_layout layout_of(matrix_view const& w) {
  return {.type = w.type,
          .rows = w.rows,
          .cols = w.cols,
          .grid = w.grid,
          .scale_type = w.scale_type,
          .multiplier = w.multiplier};
}

[[nodiscard]] inline weights weights_of(matrix_view const& w) {
  check_layout(layout_of(w), w.scales != nullptr);
  return {w.data,
          w.rows,
          static_cast<std::uint32_t>(w.cols),
          {w.scales, w.grid, w.scale_type, w.multiplier, scales_across(w.grid, w.cols)}};
}

[[nodiscard]] __host__ __device__ inline std::uint32_t octets_in(std::uint32_t cols) {
  return (cols + octet_elements - 1) / octet_elements;
}

/// Octet `index` of the row at `row` without outer scales; zeros past the end of a row of `cols`.
template <quant_type Type>
__device__ __forceinline__ void decode_octet(std::byte const* row,
                                             std::uint32_t cols,
                                             std::uint32_t index,
                                             float (&values)[8]) {
  if constexpr (plain_type<Type>) {
    std::uint32_t const left = cols - octet_elements * index;
    load_plain<Type>(row + sizeof(typename plain_value<Type>::bits) * octet_elements * index,
                     left < octet_elements ? left : octet_elements,
                     values);
  } else {
    using one = octets<Type>;
    constexpr unsigned in_block = one::block::elements / octet_elements;
    auto const* const blocks = reinterpret_cast<typename one::block const*>(row);
    octet const codes = one::load(blocks[index / in_block], index % in_block);
#pragma unroll
    for (unsigned i = 0; i < octet_elements; ++i) { values[i] = value_of<one::affine>(codes, i); }
  }
}

/// Bytes of a row.
template <quant_type Type>
[[nodiscard]] __device__ __forceinline__ std::size_t row_pitch(std::uint32_t cols) {
  if constexpr (plain_type<Type>) {
    return cols * sizeof(typename plain_value<Type>::bits);
  } else {
    using block = typename octets<Type>::block;
    return cols / block::elements * sizeof(block);
  }
}

/// Octet `index` of row `row`, all scales applied: the bits of quant::decode_rows.
template <quant_type Type>
__device__ __forceinline__ void decode_octet(weights const& w,
                                             std::size_t row,
                                             std::uint32_t index,
                                             float (&values)[8]) {
  decode_octet<Type>(w.data + row * row_pitch<Type>(w.cols), w.cols, index, values);
  w.scales.apply(row, octet_elements * index, values);
}

/// Calls visit(std::integral_constant<quant_type, type>) for a type of quant_table.
template <class Visit>
void with_type(quant_type type, Visit&& visit) {
  [&]<std::size_t... I>(std::index_sequence<I...>) {
    (void)((type == quant_table[I].type &&
            (visit(std::integral_constant<quant_type, quant_table[I].type>{}), true)) ||
           ...);
  }(std::make_index_sequence<quant_table.size()>{});
}

}  // namespace terrace::kernel::cuda::detail
