// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/error.hpp>
#include <terrace/quant/formats.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>

namespace terrace::quant {

/// Whether `encode_row` writes this type: f32, f64, f16, bf16, q1_0, q2_0, q4_0, q4_1, q8_0, q2_k
/// to q6_k, tq1_0, tq2_0 and mxfp4.
[[nodiscard]] inline bool is_encodable(quant_type type) noexcept {
  return find_traits(type).has_value() &&
         with_format(type, []<class Format>() { return encodable_format<Format>; });
}

/// Encodes x as consecutive blocks of one type.
///
/// Shapes: x [whole blocks of the type], out [row_bytes(type, x.size())].
/// Errors: not_supported for a type without an encoder; contract_error for a partial block, or a value that is not
///         finite or larger than the type holds (nothing is written then).
/// Cost:   q8_0, mxfp4 and the plain types tens of operations a value; the others try tens of scales a block.
/// Decoded values are the same on every machine; which of two equally good encodings is chosen may
/// depend on how the compiler rounds the search, so bytes are reproducible for one build only.
inline void encode_row(quant_type type, std::span<float const> x, std::byte* out) {
  with_format(type, [&]<class Format>() {
    if constexpr (encodable_format<Format>) {
      if (x.size() % Format::elements != 0) {
        throw contract_error{std::to_string(x.size()) + " values do not fill blocks of " +
                             std::to_string(Format::elements) + " as " +
                             std::string{name_of(type)} + " needs; choose another type"};
      }
      for (std::size_t i = 0; i < x.size(); ++i) {
        if (!(std::abs(x[i]) <= Format::max_magnitude)) {
          throw contract_error{"value " + std::to_string(i) + " of " + std::to_string(x.size()) +
                               " is " + std::to_string(x[i]) + ", but " +
                               std::string{name_of(type)} + " holds finite numbers up to " +
                               std::to_string(Format::max_magnitude) + " only"};
        }
      }
      for (std::size_t i = 0; i < x.size(); i += Format::elements) {
        Format const block = Format::encode(x.data() + i);
        std::memcpy(out + i / Format::elements * sizeof(Format), &block, sizeof(Format));
      }
    } else {
      throw not_supported{"terrace reads " + std::string{name_of(type)} +
                          " but does not write it; choose q8_0, q2_k to q6_k, q4_0, q4_1, "
                          "mxfp4, bf16 or f16"};
    }
  });
}

}  // namespace terrace::quant
