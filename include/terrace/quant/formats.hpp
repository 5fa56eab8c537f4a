// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/error.hpp>
#include <terrace/quant/fp8_e4m3.hpp>
#include <terrace/quant/int4_g32.hpp>
#include <terrace/quant/iq1_m.hpp>
#include <terrace/quant/iq1_s.hpp>
#include <terrace/quant/iq2_s.hpp>
#include <terrace/quant/iq2_xs.hpp>
#include <terrace/quant/iq2_xxs.hpp>
#include <terrace/quant/iq3_s.hpp>
#include <terrace/quant/iq3_xxs.hpp>
#include <terrace/quant/iq4_nl.hpp>
#include <terrace/quant/iq4_xs.hpp>
#include <terrace/quant/mxfp4.hpp>
#include <terrace/quant/mxfp4_packed.hpp>
#include <terrace/quant/nvfp4.hpp>
#include <terrace/quant/plain.hpp>
#include <terrace/quant/q1_0.hpp>
#include <terrace/quant/q2_0.hpp>
#include <terrace/quant/q2_k.hpp>
#include <terrace/quant/q3_k.hpp>
#include <terrace/quant/q4_0.hpp>
#include <terrace/quant/q4_1.hpp>
#include <terrace/quant/q4_k.hpp>
#include <terrace/quant/q5_0.hpp>
#include <terrace/quant/q5_1.hpp>
#include <terrace/quant/q5_k.hpp>
#include <terrace/quant/q6_k.hpp>
#include <terrace/quant/q8_0.hpp>
#include <terrace/quant/q8_1.hpp>
#include <terrace/quant/q8_k.hpp>
#include <terrace/quant/tq1_0.hpp>
#include <terrace/quant/tq2_0.hpp>

#include <string>
#include <utility>

namespace terrace::quant {

/// Calls `visit.template operator()<F>()` with the block format of `type` and returns its result:
/// one switch outside a loop that is compiled for each format.
/// Errors: not_supported for a type without a format.
template <class Visit>
decltype(auto) with_format(quant_type type, Visit&& visit) {
  switch (type) {
    case quant_type::f32:
      return visit.template operator()<f32>();
    case quant_type::f16:
      return visit.template operator()<f16>();
    case quant_type::bf16:
      return visit.template operator()<bf16>();
    case quant_type::f64:
      return visit.template operator()<f64>();
    case quant_type::i8:
      return visit.template operator()<i8>();
    case quant_type::i16:
      return visit.template operator()<i16>();
    case quant_type::i32:
      return visit.template operator()<i32>();
    case quant_type::i64:
      return visit.template operator()<i64>();
    case quant_type::q4_0:
      return visit.template operator()<q4_0>();
    case quant_type::q4_1:
      return visit.template operator()<q4_1>();
    case quant_type::q5_0:
      return visit.template operator()<q5_0>();
    case quant_type::q5_1:
      return visit.template operator()<q5_1>();
    case quant_type::q8_0:
      return visit.template operator()<q8_0>();
    case quant_type::q8_1:
      return visit.template operator()<q8_1>();
    case quant_type::q2_k:
      return visit.template operator()<q2_k>();
    case quant_type::q3_k:
      return visit.template operator()<q3_k>();
    case quant_type::q4_k:
      return visit.template operator()<q4_k>();
    case quant_type::q5_k:
      return visit.template operator()<q5_k>();
    case quant_type::q6_k:
      return visit.template operator()<q6_k>();
    case quant_type::q8_k:
      return visit.template operator()<q8_k>();
    case quant_type::iq2_xxs:
      return visit.template operator()<iq2_xxs>();
    case quant_type::iq2_xs:
      return visit.template operator()<iq2_xs>();
    case quant_type::iq3_xxs:
      return visit.template operator()<iq3_xxs>();
    case quant_type::iq1_s:
      return visit.template operator()<iq1_s>();
    case quant_type::iq4_nl:
      return visit.template operator()<iq4_nl>();
    case quant_type::iq3_s:
      return visit.template operator()<iq3_s>();
    case quant_type::iq2_s:
      return visit.template operator()<iq2_s>();
    case quant_type::iq4_xs:
      return visit.template operator()<iq4_xs>();
    case quant_type::iq1_m:
      return visit.template operator()<iq1_m>();
    case quant_type::tq1_0:
      return visit.template operator()<tq1_0>();
    case quant_type::tq2_0:
      return visit.template operator()<tq2_0>();
    case quant_type::mxfp4:
      return visit.template operator()<mxfp4>();
    case quant_type::nvfp4:
      return visit.template operator()<nvfp4>();
    case quant_type::q1_0:
      return visit.template operator()<q1_0>();
    case quant_type::q2_0:
      return visit.template operator()<q2_0>();
    case quant_type::fp8_e4m3:
      return visit.template operator()<fp8_e4m3>();
    case quant_type::int4_g32:
      return visit.template operator()<int4_g32>();
    case quant_type::mxfp4_packed:
      return visit.template operator()<mxfp4_packed>();
  }
  throw not_supported{"elements of type " + std::to_string(static_cast<std::uint32_t>(type)) +
                      " cannot be decoded; convert the tensor to a type that `quant_table` lists"};
}

}  // namespace terrace::quant
