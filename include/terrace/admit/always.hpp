// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/concepts/admission_policy.hpp>
#include <terrace/core/ids.hpp>

namespace terrace::admit {

/// Lets every block in.
class always {
 public:
  struct options {};

  always() = default;
  explicit always(options) noexcept {}

  [[nodiscard]] bool admit(block_id) noexcept { return true; }
};

static_assert(admission_policy<always>);

}  // namespace terrace::admit
