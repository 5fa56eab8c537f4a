// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/ids.hpp>

#include <concepts>

namespace terrace {

/// Decides whether a block that was just read may enter a level below the fastest one.
/// `admit(id)` is asked once per arrival and may remember having been asked.
template <class P>
concept admission_policy = std::movable<P> && requires(P& policy, block_id id) {
  { policy.admit(id) } -> std::same_as<bool>;
};

}  // namespace terrace
