// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/error.hpp>
#include <terrace/core/ids.hpp>
#include <terrace/core/sigmoid_router.hpp>
#include <terrace/kernel/cpu/detail/exponential.hpp>
#include <terrace/kernel/cpu/thread_pool.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace terrace::kernel::cpu {

/// Chooses experts for each token.
///
/// Shapes:   logits [tokens, experts]; bias [experts] or null for zeros; ids, weights [tokens, top_k].
/// Ordering: ids by descending biased score, equal scores by ascending id; a NaN score comes last.
/// Errors:   contract_error unless 1 <= top_k <= experts.
/// Source:   the "noaux_tc" router of DeepSeek-V3, without groups.
inline void route_sigmoid(thread_pool& pool,
                          sigmoid_router const& router,
                          float const* logits,
                          float const* bias,
                          std::size_t tokens,
                          expert_id* ids,
                          float* weights) {
  if (router.top_k == 0 || router.top_k > router.experts) {
    throw contract_error{"a router cannot choose " + std::to_string(router.top_k) + " of " +
                         std::to_string(router.experts) + " experts"};
  }
  using detail::f32x16;
  pool.for_range(tokens, 16, [&](std::size_t begin, std::size_t end) {
    std::size_t const experts = router.experts;
    std::vector<float> score(experts + 16);
    std::vector<float> biased(experts + 16);
    std::vector<char> taken(experts);
    for (std::size_t t = begin; t < end; ++t) {
      for (std::size_t e = 0; e < experts; e += 16) {
        std::size_t const count = std::min<std::size_t>(16, experts - e);
        f32x16 const s = detail::sigmoid(f32x16::load_first(logits + t * experts + e, count));
        s.store(score.data() + e);
        (bias == nullptr ? s : s + f32x16::load_first(bias + e, count)).store(biased.data() + e);
      }
      float total = 0;
      std::fill(taken.begin(), taken.end(), false);
      for (std::size_t k = 0; k < router.top_k; ++k) {
        std::size_t best =
            experts;  // the first one left, then any that is larger; NaN is never larger
        for (std::size_t e = 0; e < experts; ++e) {
          if (taken[e]) { continue; }
          bool const instead_of_nan =
              best < experts && biased[best] != biased[best] && biased[e] == biased[e];
          if (best == experts || instead_of_nan || biased[e] > biased[best]) { best = e; }
        }
        taken[best] = true;
        ids[t * router.top_k + k] = static_cast<expert_id>(best);
        weights[t * router.top_k + k] = score[best];
        total += score[best];
      }
      for (std::size_t k = 0; k < router.top_k; ++k) {
        float& weight = weights[t * router.top_k + k];
        weight = (router.normalise ? weight / (total + 1e-20F) : weight) * router.scale;
      }
    }
  });
}

}  // namespace terrace::kernel::cpu
