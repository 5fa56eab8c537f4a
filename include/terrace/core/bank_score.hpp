// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/block.hpp>

namespace terrace {

/// What scores the candidates of a residual bank: one vector, or the product of two, element by
/// element, as files keep it.
struct bank_score {
  matrix_view weight;    ///< [1, hidden]
  matrix_view factor{};  ///< [1, hidden]; without data it is ones
};

}  // namespace terrace
