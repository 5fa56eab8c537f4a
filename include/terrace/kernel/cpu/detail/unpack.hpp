// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/block.hpp>
#include <terrace/kernel/cpu/detail/int8_rows.hpp>
#include <terrace/kernel/cpu/detail/unpack_256.hpp>
#include <terrace/kernel/cpu/detail/unpack_32.hpp>

namespace terrace::kernel::cpu::detail {

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
