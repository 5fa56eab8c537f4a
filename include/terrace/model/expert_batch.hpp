// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/ids.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace terrace::model {

/// The distinct experts of a batch, ascending, each with the tokens that chose it and its weight
/// for each. Expert-major: however many tokens chose an expert, it is read once.
class expert_batch {
 public:
  struct entry {
    expert_id expert{};
    std::size_t first = 0;  ///< into tokens() and weights()
    std::size_t count = 0;
  };

  /// `chosen` and `weights` are [tokens, top_k]. Errors: none; ids must be below `experts`.
  void assign(std::span<expert_id const> chosen,
              std::span<float const> weights,
              std::size_t top_k,
              std::size_t experts) {
    counts_.assign(experts + 1, 0);
    for (auto const id : chosen) { ++counts_[static_cast<std::size_t>(id) + 1]; }
    entries_.clear();
    for (std::size_t expert = 0; expert < experts; ++expert) {
      std::size_t const count = counts_[expert + 1];
      if (count > 0) {
        entries_.push_back({expert_id{static_cast<std::uint32_t>(expert)}, counts_[expert], count});
      }
      counts_[expert + 1] += counts_[expert];
    }
    tokens_.resize(chosen.size());
    weights_.resize(chosen.size());
    for (std::size_t i = 0; i < chosen.size(); ++i) {
      std::size_t const at = counts_[static_cast<std::size_t>(chosen[i])]++;
      tokens_[at] = static_cast<std::uint32_t>(i / top_k);
      weights_[at] = weights[i];
    }
  }

  [[nodiscard]] std::span<entry const> entries() const noexcept { return entries_; }
  [[nodiscard]] std::span<std::uint32_t const> tokens(entry const& one) const noexcept {
    return std::span{tokens_}.subspan(one.first, one.count);
  }
  [[nodiscard]] std::span<float const> weights(entry const& one) const noexcept {
    return std::span{weights_}.subspan(one.first, one.count);
  }

 private:
  std::vector<std::size_t> counts_;
  std::vector<entry> entries_;
  std::vector<std::uint32_t> tokens_;
  std::vector<float> weights_;
};

}  // namespace terrace::model
