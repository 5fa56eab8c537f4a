// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/concepts/prefetch_policy.hpp>
#include <terrace/core/block_map.hpp>
#include <terrace/core/error.hpp>
#include <terrace/core/ids.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace terrace::prefetch {

/// Fetches what followed before: learns which experts of the next layer come after each expert of
/// this one, and adds the experts the next layer used for the previous token.
///
/// The chance of a candidate is the mean over this layer's experts of how often it followed them,
/// plus, if the previous token used it, the measured rate at which experts repeat. Sets above
/// `most_experts` (prefill batches) teach nothing, for which token wanted what is lost in them.
/// Cost:   per layer and token O(k * k * successors); memory at most sources * (successors * 8 + 48) bytes.
class trace_markov {
 public:
  struct options {
    std::size_t width = 8;          ///< suggestions per layer at most; 1 to 256
    float least_chance = 0.35F;     ///< candidates below it are not worth a read; 0 to 1
    std::size_t successors = 16;    ///< followers remembered per expert; 1 to 64
    float half_life_uses = 64;      ///< uses of an expert after which what followed it counts half
    std::size_t sources = 131'072;  ///< experts remembered at most; later ones are not learnt
    std::size_t most_experts = 64;  ///< largest set that counts as one token's
  };

  explicit trace_markov(options chosen) : options_{chosen} {
    validate(chosen);
    decay_ = std::exp2(-1.0F / chosen.half_life_uses);
  }

  void observe(access const& seen) {
    if (kind_of(seen.block) != block_kind::expert || index_of(seen.block) >= most_index) { return; }
    if (now_.experts.empty() || layer_of(seen.block) != now_.layer) {
      start_layer(layer_of(seen.block));
    }
    if (now_.experts.size() <= options_.most_experts) {
      now_.experts.push_back(index_of(seen.block));
    }
    guessed_ = false;
  }
  void hint(lookahead const&) noexcept {}

  [[nodiscard]] std::size_t suggest(std::span<block_id> out) {
    if (!guessed_) { guess(); }
    std::size_t const count = std::min(out.size(), pending_.size());
    std::copy_n(pending_.begin(), count, out.begin());
    pending_.erase(pending_.begin(), pending_.begin() + static_cast<std::ptrdiff_t>(count));
    return count;
  }

 private:
  static constexpr std::uint32_t most_index =
      65'536;  ///< experts of a layer, far above any model's

  struct layer_set {
    layer_id layer = no_layer;
    std::vector<std::uint32_t> experts;  ///< more than most_experts of them: a batch
  };
  struct follower {
    std::uint32_t expert = 0;
    float weight = 0;
  };
  struct source {
    std::uint32_t row = 0;  ///< its followers start at row * successors
    float weight = 0;       ///< decayed uses
  };
  struct layer_memory {
    layer_id next = no_layer;            ///< the layer that came after this one last time
    std::vector<std::uint32_t> experts;  ///< what the last token used here
  };

  static void validate(options const& chosen) {
    auto const refuse = [](char const* option, auto value, char const* range) {
      throw contract_error{"prefetch::trace_markov: " + std::string{option} + " is " +
                           std::to_string(value) + "; choose " + range};
    };
    if (chosen.width < 1 || chosen.width > 256) { refuse("width", chosen.width, "from 1 to 256"); }
    if (!(chosen.least_chance >= 0 && chosen.least_chance <= 1)) {
      refuse("least_chance", chosen.least_chance, "a chance from 0 to 1");
    }
    if (chosen.successors < 1 || chosen.successors > 64) {
      refuse("successors", chosen.successors, "from 1 to 64");
    }
    if (!(chosen.half_life_uses > 0 && chosen.half_life_uses <= 1e6F)) {
      refuse("half_life_uses", chosen.half_life_uses, "a number above 0 and at most 1000000");
    }
    if (chosen.sources < 1 || chosen.sources > 4'194'304) {
      refuse("sources", chosen.sources, "from 1 to 4194304");
    }
    if (chosen.most_experts < 1 || chosen.most_experts > 256) {
      refuse("most_experts", chosen.most_experts, "from 1 to 256");
    }
  }

  [[nodiscard]] bool is_batch(layer_set const& set) const noexcept {
    return set.experts.size() > options_.most_experts;
  }

  /// The set of the current layer is complete: learn from it and make it the one before.
  void start_layer(layer_id layer) {
    finish_layer();
    std::swap(before_, now_);
    now_.layer = layer;
    now_.experts.clear();
  }
  void finish_layer() {
    if (now_.experts.empty()) { return; }
    if (before_.layer != no_layer && !is_batch(before_) && !is_batch(now_)) {
      for (std::uint32_t const expert : before_.experts) {
        learn(expert_block(before_.layer, expert_id{expert}));
      }
    }
    if (before_.layer != no_layer) { memory_of(before_.layer).next = now_.layer; }
    layer_memory& here = memory_of(now_.layer);
    if (is_batch(now_)) {
      here.experts.clear();
      return;
    }
    for (std::uint32_t const expert : here.experts) {
      float const again = contains(now_.experts, expert) ? 1.0F : 0.0F;
      repeat_rate_ += (again - repeat_rate_) / 1024;
    }
    here.experts = now_.experts;
  }
  void learn(block_id from) {
    source* known = sources_.find(from);
    if (known == nullptr) {
      if (sources_.size() >= options_.sources) { return; }
      followers_.resize((sources_.size() + 1) * options_.successors);
      known = &sources_.assign(from, {static_cast<std::uint32_t>(sources_.size()), 0});
    }
    std::span<follower> const row = followers_of(*known);
    known->weight = known->weight * decay_ + 1;
    for (follower& each : row) { each.weight *= decay_; }
    for (std::uint32_t const expert : now_.experts) {
      auto const found = std::find_if(row.begin(), row.end(), [expert](follower const& each) {
        return each.expert == expert && each.weight > 0;
      });
      if (found != row.end()) {
        found->weight += 1;
        continue;
      }
      auto const least =
          std::min_element(row.begin(), row.end(), [](follower const& a, follower const& b) {
            return a.weight < b.weight;
          });
      if (least->weight < 1) { *least = {expert, 1}; }
    }
  }

  /// Fills `pending_` with guesses for the layer after the current one.
  void guess() {
    guessed_ = true;
    pending_.clear();
    if (now_.experts.empty() || is_batch(now_)) { return; }
    layer_memory const* here = layers_.find(expert_block(now_.layer, expert_id{}));
    if (here == nullptr || here->next == no_layer) { return; }
    layer_id const next = here->next;
    chances_.clear();
    for (std::uint32_t const expert : now_.experts) {
      source const* known = sources_.find(expert_block(now_.layer, expert_id{expert}));
      if (known == nullptr) { continue; }
      float const share = 1 / (known->weight * static_cast<float>(now_.experts.size()));
      for (follower const& each : followers_of(*known)) {
        add_chance(each.expert, each.weight * share);
      }
    }
    for (std::uint32_t const expert : memory_of(next).experts) { add_chance(expert, repeat_rate_); }
    std::erase_if(chances_,
                  [this](follower const& each) { return each.weight < options_.least_chance; });
    std::stable_sort(chances_.begin(), chances_.end(), [](follower const& a, follower const& b) {
      return a.weight > b.weight;
    });
    if (chances_.size() > options_.width) { chances_.resize(options_.width); }
    for (follower const& each : chances_) {
      pending_.push_back(expert_block(next, expert_id{each.expert}));
    }
  }
  void add_chance(std::uint32_t expert, float chance) {
    if (!(chance > 0)) { return; }
    if (expert >= place_.size()) { place_.resize(expert + std::size_t{1}); }
    std::uint32_t& place = place_[expert];
    if (place >= chances_.size() || chances_[place].expert != expert) {
      place = static_cast<std::uint32_t>(chances_.size());
      chances_.push_back({expert, 0});
    }
    chances_[place].weight += chance;
  }

  [[nodiscard]] layer_memory& memory_of(layer_id layer) {
    block_id const key = expert_block(layer, expert_id{});
    layer_memory* known = layers_.find(key);
    return known != nullptr ? *known : layers_.assign(key, {});
  }
  [[nodiscard]] std::span<follower> followers_of(source const& from) noexcept {
    return std::span{followers_}.subspan(from.row * options_.successors, options_.successors);
  }
  [[nodiscard]] static bool contains(std::vector<std::uint32_t> const& experts,
                                     std::uint32_t expert) noexcept {
    return std::find(experts.begin(), experts.end(), expert) != experts.end();
  }

  options options_;
  float decay_ = 1;
  float repeat_rate_ =
      0.35F;  ///< chance that an expert is used again by the next token; measured from here on
  layer_set before_;
  layer_set now_;
  block_map<source> sources_;
  std::vector<follower> followers_;
  block_map<layer_memory> layers_;
  std::vector<follower> chances_;     ///< scratch of guess()
  std::vector<std::uint32_t> place_;  ///< per expert: where it may be in `chances_`
  std::vector<block_id> pending_;
  bool guessed_ = true;
};

static_assert(prefetch_policy<trace_markov>);

}  // namespace terrace::prefetch
