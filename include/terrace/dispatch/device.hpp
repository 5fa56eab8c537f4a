// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/concepts/dispatch_policy.hpp>

namespace terrace::dispatch {

/// Computes every expert on the device, moving or reading in place what is not there.
struct device {
  [[nodiscard]] dispatch_choice choose(expert_work const& /*work*/) const noexcept {
    return {.side = compute_side::device};
  }
  void observe(expert_work const& /*work*/, compute_side /*side*/, double /*seconds*/) noexcept {}
};

static_assert(dispatch_policy<device>);

}  // namespace terrace::dispatch
