// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/concepts/prefetch_policy.hpp>
#include <terrace/core/error.hpp>
#include <terrace/core/ids.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <span>
#include <string>
#include <vector>

namespace terrace::prefetch {

/// Fetches what a later layer's router would choose on this layer's state. Lives on the pipeline's
/// hints.
///
/// Candidates of the nearest layer come first, within a layer the best scored. Hints for one layer
/// add up: an expert hinted again takes its newest score. Candidates are dropped once an expert of
/// their layer, or of a later one, has been asked for: the real router has spoken.
/// Cost:   a hint sorts its candidates; a suggestion looks at width + slack of them per layer; at most 64 layers are kept.
/// Source: Eliseev and Mazur 2023 (speculative expert loading).
class gate_lookahead {
 public:
  struct options {
    std::size_t width = 8;  ///< best candidates kept per layer; about the router's top-k
    std::size_t slack =
        2;  ///< candidates kept beyond them, because the guess is off by a rank or two
  };

  explicit gate_lookahead(options chosen) : keep_{chosen.width + chosen.slack} {
    if (chosen.width < 1 || chosen.width > most_kept || chosen.slack > most_kept) {
      throw contract_error{"prefetch::gate_lookahead: width is " + std::to_string(chosen.width) +
                           " and slack is " + std::to_string(chosen.slack) +
                           "; choose a width from 1 to 4096 and a slack up to 4096"};
    }
  }

  void observe(access const& seen) noexcept {
    if (kind_of(seen.block) != block_kind::expert) {
      return;
    }  // a layer's dense blocks come before its experts
    layer_id const reached = layer_of(seen.block);
    if (pending_.empty() || pending_.front().layer > reached) { return; }
    std::erase_if(pending_, [reached](candidates const& each) { return each.layer <= reached; });
  }

  void hint(lookahead const& ahead) {
    auto at = std::lower_bound(
        pending_.begin(), pending_.end(), ahead.layer, [](candidates const& each, layer_id layer) {
          return each.layer < layer;
        });
    if (at == pending_.end() || at->layer != ahead.layer) {
      if (pending_.size() >= most_layers) { return; }
      at = pending_.insert(at, {ahead.layer, {}});
    }
    merge(at->best, ahead);
  }

  [[nodiscard]] std::size_t suggest(std::span<block_id> out) noexcept {
    std::size_t written = 0;
    for (auto& [layer, best] : pending_) {
      for (candidate& each : best) {
        if (written == out.size()) { return written; }
        if (each.taken) { continue; }
        out[written++] = expert_block(layer, each.expert);
        each.taken = true;
      }
    }
    return written;
  }

 private:
  static constexpr std::size_t most_kept = 4096;
  static constexpr std::size_t most_layers = 64;

  struct candidate {
    expert_id expert{};
    float score = 0;
    bool taken = false;  ///< suggested since it was last hinted
  };
  struct candidates {
    layer_id layer{};
    std::vector<candidate> best;  ///< best first
  };

  void merge(std::vector<candidate>& best, lookahead const& ahead) {
    constexpr float worst = -std::numeric_limits<float>::infinity();
    fresh_.clear();
    for (std::size_t i = 0; i < ahead.experts.size(); ++i) {
      float const given = i < ahead.scores.size() ? ahead.scores[i] : worst;
      fresh_.push_back({ahead.experts[i], std::isnan(given) ? worst : given, false});
    }
    keep_best(fresh_);
    for (candidate const& each : fresh_) {
      auto const known = std::find_if(best.begin(), best.end(), [&](candidate const& other) {
        return other.expert == each.expert;
      });
      if (known == best.end()) {
        best.push_back(each);
      } else {
        *known = each;
      }
    }
    keep_best(best);
  }
  /// Equal scores keep their order: hints come best first.
  void keep_best(std::vector<candidate>& list) const {
    std::stable_sort(list.begin(), list.end(), [](candidate const& a, candidate const& b) {
      return a.score > b.score;
    });
    if (list.size() > keep_) { list.resize(keep_); }
  }

  std::size_t keep_;
  std::vector<candidates> pending_;  ///< by rising layer
  std::vector<candidate> fresh_;     ///< scratch of merge()
};

static_assert(prefetch_policy<gate_lookahead>);

}  // namespace terrace::prefetch
