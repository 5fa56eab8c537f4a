// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/concepts/dispatch_policy.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace terrace::dispatch {

/// The side that measured faster, for batches of about this many tokens in layers with about this
/// share of experts missing from the device.
///
/// Each kind of work is tried twice on either side, the better try counting: the first one pays for
/// waking up. Then the winner runs, timed now and then, and the loser is tried again after every
/// `retry` choices, so that a change of load or of residency is noticed. What it decides depends on
/// time: results may differ from run to run within the rounding of the two sides.
class cheapest {
 public:
  struct options {
    std::uint32_t retry = 512;  ///< choices between tries of the slower side
    std::uint32_t check = 32;   ///< choices between timings of the faster one
  };
  cheapest() noexcept : cheapest(options{}) {}
  explicit cheapest(options how) noexcept : how_{how} {}

  [[nodiscard]] dispatch_choice choose(expert_work const& work) noexcept {
    auto& kind = kind_of(work);
    for (auto const side : {compute_side::device, compute_side::host}) {
      if (kind.at(side).tries < tries_first) { return {.side = side, .timed = true}; }
    }
    ++kind.choices;
    bool const device =
        kind.at(compute_side::device).seconds <= kind.at(compute_side::host).seconds;
    auto const better = device ? compute_side::device : compute_side::host;
    auto const worse = device ? compute_side::host : compute_side::device;
    if (kind.choices % how_.retry == 0) { return {.side = worse, .timed = true}; }
    return {.side = better, .timed = kind.choices % how_.check == 0};
  }

  void observe(expert_work const& work, compute_side side, double seconds) noexcept {
    auto& one = kind_of(work).at(side);
    double const each = seconds / static_cast<double>(std::max<std::size_t>(work.experts, 1));
    if (one.tries < tries_first) {
      one.seconds = one.tries == 0 ? each : std::min(one.seconds, each);
    } else {
      one.seconds += (each - one.seconds) / 4;
    }
    ++one.tries;
  }

 private:
  static constexpr std::uint32_t tries_first = 2;
  static constexpr std::size_t token_classes = 16;  ///< powers of two
  static constexpr std::size_t miss_classes = 5;    ///< none, then quarters

  struct measured {
    double seconds = 0;  ///< per expert
    std::uint32_t tries = 0;
  };
  struct work_kind {
    std::array<measured, 2> sides;
    std::uint32_t choices = 0;
    [[nodiscard]] measured& at(compute_side side) noexcept {
      return sides[static_cast<std::size_t>(side)];
    }
  };

  [[nodiscard]] work_kind& kind_of(expert_work const& work) noexcept {
    auto const tokens = std::min<std::size_t>(static_cast<std::size_t>(std::bit_width(work.tokens)),
                                              token_classes - 1);
    std::size_t const experts = std::max<std::size_t>(work.experts, 1);
    std::size_t const missing = std::min(work.missing, experts);
    return kinds_[tokens][(missing * (miss_classes - 1) + experts - 1) / experts];
  }

  options how_;
  std::array<std::array<work_kind, miss_classes>, token_classes> kinds_{};
};

static_assert(dispatch_policy<cheapest>);

}  // namespace terrace::dispatch
