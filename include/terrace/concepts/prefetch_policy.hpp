// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/ids.hpp>

#include <concepts>
#include <cstddef>
#include <span>

namespace terrace {

/// One block was asked for by the pipeline.
struct access {
  block_id block{};
  bool hit = false;
};

/// A later layer's router applied to this layer's state: candidates and their scores, best first.
struct lookahead {
  layer_id layer{};
  std::span<expert_id const> experts;
  std::span<float const> scores;
};

/// Guesses which blocks will be asked for soon. Keeps books only: the store filters what is
/// resident and starts reads.
///
/// `observe(access)`   called for every block of every acquire, in order
/// `hint(lookahead)`   called by pipelines that score later routers early
/// `suggest(out)`      writes up to out.size() ids, most urgent first, and returns how many; what
/// it returned is
///                     consumed and not suggested again without new evidence
template <class P>
concept prefetch_policy =
    std::movable<P> &&
    requires(P& policy, access const& seen, lookahead const& ahead, std::span<block_id> out) {
      { policy.observe(seen) } -> std::same_as<void>;
      { policy.hint(ahead) } -> std::same_as<void>;
      { policy.suggest(out) } -> std::same_as<std::size_t>;
    };

}  // namespace terrace
