// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/concepts/dispatch_policy.hpp>

namespace terrace::dispatch {

/// Computes every expert on the host, where its bytes lie.
struct host {
  [[nodiscard]] dispatch_choice choose(expert_work const& /*work*/) const noexcept {
    return {.side = compute_side::host};
  }
  void observe(expert_work const& /*work*/, compute_side /*side*/, double /*seconds*/) noexcept {}
};

static_assert(dispatch_policy<host>);

}  // namespace terrace::dispatch
