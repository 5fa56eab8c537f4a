// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/concepts/dispatch_policy.hpp>

#include <cstddef>

namespace terrace::dispatch {

/// The device from a batch of `tokens` tokens on, the host below: many tokens repay the way of an
/// expert to the device, few do not.
class min_batch {
 public:
  struct options {
    std::size_t tokens = 32;
  };
  explicit min_batch(options how) noexcept : tokens_{how.tokens} {}

  [[nodiscard]] dispatch_choice choose(expert_work const& work) const noexcept {
    return {.side = work.tokens < tokens_ ? compute_side::host : compute_side::device};
  }
  void observe(expert_work const& /*work*/, compute_side /*side*/, double /*seconds*/) noexcept {}

 private:
  std::size_t tokens_;
};

static_assert(dispatch_policy<min_batch>);

}  // namespace terrace::dispatch
