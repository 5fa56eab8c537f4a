// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace terrace {

/// How activations are rounded on their way into a product. Both are deterministic and independent
/// of where weights live.
enum class numerics : unsigned char {
  exact,  ///< activations stay float32
  fast,   ///< activations may be rounded to 8 or 16 bits, as other engines do
};

[[nodiscard]] constexpr std::string_view name_of(numerics mode) noexcept {
  return mode == numerics::exact ? "exact" : "fast";
}

}  // namespace terrace
