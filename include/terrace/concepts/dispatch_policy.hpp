// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/ids.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>

namespace terrace {

/// Where a layer's experts are computed.
enum class compute_side : std::uint8_t { device, host };

/// The experts of one layer that one batch of tokens chose.
struct expert_work {
  layer_id layer{};
  std::size_t tokens = 0;
  std::size_t experts = 0;  ///< distinct ones
  std::size_t missing = 0;  ///< of them, not in the device's own memory
};

struct dispatch_choice {
  compute_side side = compute_side::device;
  /// The caller waits for the work to end and reports how long it took; costs a synchronisation.
  bool timed = false;
};

/// Decides where experts are computed. Keeps books only.
///
/// `choose(work)`                 called once for every mixture layer of every batch
/// `observe(work, side, seconds)` what a timed choice took, from its inputs to its summed outputs
template <class P>
concept dispatch_policy =
    std::movable<P> && requires(P& policy, expert_work const& work, compute_side side, double s) {
      { policy.choose(work) } -> std::same_as<dispatch_choice>;
      { policy.observe(work, side, s) } -> std::same_as<void>;
    };

}  // namespace terrace
