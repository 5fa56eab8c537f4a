// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/error.hpp>
#include <terrace/core/ids.hpp>
#include <terrace/core/units.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

namespace terrace::runtime {

/// What a model asks of memory, known before any store exists. Bytes are as the fastest tier counts
/// them.
struct requirements {
  struct block {
    block_id id{};
    std::uint64_t bytes = 0;
  };
  /// Blocks that are leased together: dense ones, and for a mixture layer some of its experts
  /// beside them.
  struct step {
    std::vector<block> dense;
    std::uint64_t expert_bytes = 0;  ///< of one expert of this layer; 0 without experts
    layer_id layer = no_layer;       ///< of the experts
  };

  std::string architecture;
  int vocab = 0;
  int context_limit = 0;   ///< the model's own
  int context_tokens = 0;  ///< planned for
  int layers = 0;
  int mixture_layers = 0;
  int first_mixture_layer = 0;
  int experts = 0;
  int top_k = 0;
  std::uint64_t state_bytes = 0;      ///< of one full sequence of context_tokens
  std::uint64_t recurrent_bytes = 0;  ///< of those, state whose size no context changes
  /// What a pipeline on a device takes of its memory beside the store's: activations, logits,
  /// scratch. 0 on the host.
  std::uint64_t compute_bytes = 0;
  std::vector<step> steps;  ///< in the order of a pass

  [[nodiscard]] std::uint64_t all_expert_blocks() const noexcept {
    return static_cast<std::uint64_t>(mixture_layers) * static_cast<std::uint64_t>(experts);
  }
  [[nodiscard]] std::uint64_t dense_bytes() const {
    std::uint64_t sum = 0;
    for (auto const& one : distinct_dense()) { sum += one.bytes; }
    return sum;
  }
  [[nodiscard]] std::uint64_t all_expert_bytes() const noexcept {
    std::uint64_t sum = 0;
    for (auto const& one : steps) { sum += one.expert_bytes * static_cast<std::uint64_t>(experts); }
    return sum;
  }
  /// Dense blocks in order of first use, each once (a tied head is the embedding).
  [[nodiscard]] std::vector<block> distinct_dense() const {
    std::vector<block> all;
    std::unordered_set<std::uint64_t> seen;
    for (auto const& one : steps) {
      for (auto const& dense : one.dense) {
        if (seen.insert(static_cast<std::uint64_t>(dense.id)).second) { all.push_back(dense); }
      }
    }
    return all;
  }
};

struct plan_request {
  std::string tier = "dram";         ///< the fastest level, as named in sentences and options
  std::uint64_t capacity_bytes = 0;  ///< of the fastest level, staging included
  std::uint64_t staging_bytes = 0;
  bool on_device = false;            ///< the level shares its memory with the pipeline's kernels
  std::size_t expert_slots = 0;      ///< most experts resident at once; 0 leaves it to the capacity
  std::vector<block_id> must_pin{};  ///< placed with `:pin`
  std::vector<block_id> not_here{};  ///< placed in another level: neither pinned nor counted here
  std::vector<block_id> not_kept{};  ///< placed at home: counted while in use, never pinned
};

/// How the fastest level will be used. A contract: the level never holds more than
/// `predicted_peak_bytes`.
struct plan {
  std::vector<block_id> pinned;  ///< leased for as long as the pipeline lives
  std::uint64_t pinned_bytes = 0;
  std::uint64_t state_bytes = 0;
  std::uint64_t staging_bytes = 0;
  std::uint64_t compute_bytes = 0;  ///< of the requirements, where the level is the device's memory
  std::uint64_t working_bytes = 0;  ///< most that one step leases beside what is pinned
  std::uint64_t cache_bytes =
      0;  ///< what is left for experts and streamed blocks, working_bytes included
  std::uint64_t minimum_bytes = 0;  ///< smallest capacity that works
  std::uint64_t predicted_peak_bytes = 0;
  std::size_t expert_slots = 0;  ///< experts that fit at once under the slot limit and the bytes
};

namespace detail {

/// Working set of a pass when `pinned` blocks need no room of their own.
class working_set {
 public:
  working_set(requirements const& needs, plan_request const& request, std::uint64_t experts_a_step)
      : needs_{&needs}, experts_{experts_a_step} {
    for (auto const id : request.not_here) { elsewhere_.insert(static_cast<std::uint64_t>(id)); }
  }
  void pin(block_id id) {
    bool const fresh = pinned_.insert(static_cast<std::uint64_t>(id)).second;
    if (fresh && kind_of(id) == block_kind::expert) { ++pinned_experts_[layer_of(id)]; }
  }
  [[nodiscard]] bool elsewhere(block_id id) const {
    return elsewhere_.contains(static_cast<std::uint64_t>(id));
  }
  [[nodiscard]] bool pinned(block_id id) const {
    return pinned_.contains(static_cast<std::uint64_t>(id));
  }
  [[nodiscard]] std::uint64_t largest_step() const {
    std::uint64_t most = 0;
    for (auto const& step : needs_->steps) {
      most = std::max(
          most, dense_bytes(step) + step.expert_bytes * std::min(experts_, floating_experts(step)));
    }
    return most;
  }
  /// Most expert slots that one step leases beside the pinned ones.
  [[nodiscard]] std::uint64_t largest_expert_set() const {
    std::uint64_t most = 0;
    for (auto const& step : needs_->steps) {
      most = std::max(most, std::min(experts_, floating_experts(step)));
    }
    return most;
  }
  [[nodiscard]] std::uint64_t pinned_experts() const {
    std::uint64_t sum = 0;
    for (auto const& [layer, count] : pinned_experts_) { sum += count; }
    return sum;
  }
  /// Bytes of all blocks that may come to be here beside the pinned ones, `slots` experts among
  /// them at most.
  [[nodiscard]] std::uint64_t floating_bytes(std::uint64_t slots) const {
    std::uint64_t dense = 0, experts = 0, largest = 0;
    for (auto const& one : needs_->distinct_dense()) {
      if (!pinned(one.id) && !elsewhere(one.id)) { dense += one.bytes; }
    }
    for (auto const& step : needs_->steps) {
      experts += step.expert_bytes * floating_experts(step);
      largest = std::max(largest, step.expert_bytes);
    }
    bool const all_fit = largest == 0 || slots >= needs_->all_expert_blocks();
    return dense + (all_fit ? experts : std::min(experts, slots * largest));
  }

 private:
  [[nodiscard]] std::uint64_t dense_bytes(requirements::step const& step) const {
    std::uint64_t sum = 0;
    for (auto const& dense : step.dense) {
      if (!pinned(dense.id) && !elsewhere(dense.id)) { sum += dense.bytes; }
    }
    return sum;
  }
  /// Experts of a step's layer that are here but not pinned.
  [[nodiscard]] std::uint64_t floating_experts(requirements::step const& step) const {
    if (step.expert_bytes == 0 || elsewhere(expert_block(step.layer, expert_id{0}))) { return 0; }
    auto const pinned = pinned_experts_.find(step.layer);
    return static_cast<std::uint64_t>(needs_->experts) -
           (pinned == pinned_experts_.end() ? 0 : pinned->second);
  }

  requirements const* needs_;
  std::uint64_t experts_;
  std::unordered_set<std::uint64_t> pinned_, elsewhere_;
  std::map<layer_id, std::uint64_t> pinned_experts_;
};

/// What a block of the model counts for; nothing if no pass uses it.
[[nodiscard]] inline std::optional<std::uint64_t> bytes_of(requirements const& needs, block_id id) {
  for (auto const& step : needs.steps) {
    if (kind_of(id) == block_kind::expert && step.expert_bytes > 0 && step.layer == layer_of(id)) {
      return step.expert_bytes;
    }
    for (auto const& dense : step.dense) {
      if (dense.id == id) { return dense.bytes; }
    }
  }
  return std::nullopt;
}

inline void check_expert_slots(working_set const& least,
                               requirements const& needs,
                               plan_request const& request) {
  std::uint64_t const smallest = least.pinned_experts() + least.largest_expert_set();
  if (needs.experts == 0 || request.expert_slots == 0 || request.expert_slots >= smallest) {
    return;
  }
  throw out_of_capacity{
      std::to_string(request.expert_slots) + " expert slots are too few: a token uses " +
          std::to_string(needs.top_k) + " experts of a layer at once" +
          (least.pinned_experts() == 0
               ? ""
               : ", and " + std::to_string(least.pinned_experts()) + " are pinned") +
          "; the smallest number that works is " + std::to_string(smallest),
      smallest,
      request.expert_slots};
}

}  // namespace detail

/// Decides what is pinned: what placement asks for, then dense blocks in order of use while what
/// remains still holds the largest step. Every token reads every dense block, so none is worth less
/// than an expert.
///
/// Errors: out_of_capacity with the smallest capacity, or the smallest number of expert slots, that works.
[[nodiscard]] inline plan make_plan(requirements const& needs, plan_request const& request) {
  plan result;
  result.state_bytes = needs.state_bytes;
  result.staging_bytes = request.staging_bytes;
  result.compute_bytes = request.on_device ? needs.compute_bytes : 0;
  std::uint64_t const fixed = needs.state_bytes + request.staging_bytes + result.compute_bytes;
  detail::working_set least{needs, request, static_cast<std::uint64_t>(needs.top_k)};
  auto const dense = needs.distinct_dense();
  auto const pin = [&](requirements::block const& one) {
    least.pin(one.id);
    result.pinned.push_back(one.id);
    result.pinned_bytes += one.bytes;
  };
  for (auto const id : request.must_pin) {
    if (auto const bytes = detail::bytes_of(needs, id)) { pin({id, *bytes}); }
  }
  detail::check_expert_slots(least, needs, request);
  result.minimum_bytes = fixed + result.pinned_bytes + least.largest_step();
  if (request.capacity_bytes < result.minimum_bytes) {
    throw out_of_capacity{
        "--" + request.tier + " " + std::to_string(request.capacity_bytes) + " (" +
            format_size(request.capacity_bytes) + ") is too small: sequence state takes " +
            format_size(needs.state_bytes) + ", staging " + format_size(request.staging_bytes) +
            (result.compute_bytes == 0 ? "" : ", computing " + format_size(result.compute_bytes)) +
            (result.pinned_bytes == 0 ? ""
                                      : ", what --place pins " + format_size(result.pinned_bytes)) +
            " and the largest step of a token " + format_size(least.largest_step()) +
            "; the smallest value that works is " + std::to_string(result.minimum_bytes),
        result.minimum_bytes,
        request.capacity_bytes};
  }
  std::uint64_t spare = request.capacity_bytes - fixed - result.pinned_bytes;
  std::unordered_set<std::uint64_t> not_kept;
  for (auto const id : request.not_kept) { not_kept.insert(static_cast<std::uint64_t>(id)); }
  for (auto const& one : dense) {
    if (least.pinned(one.id) || least.elsewhere(one.id) || one.bytes > spare) { continue; }
    if (not_kept.contains(static_cast<std::uint64_t>(one.id))) { continue; }
    auto trial = least;
    trial.pin(one.id);
    if (trial.largest_step() > spare - one.bytes) { continue; }
    pin(one);
    spare -= one.bytes;
  }
  result.working_bytes = least.largest_step();
  result.cache_bytes = spare;
  std::uint64_t expert_bytes = 0;
  for (auto const& step : needs.steps) { expert_bytes = std::max(expert_bytes, step.expert_bytes); }
  if (expert_bytes > 0) {
    std::uint64_t const fit = spare / expert_bytes;
    result.expert_slots =
        static_cast<std::size_t>(std::min<std::uint64_t>(fit, needs.all_expert_blocks()));
    if (request.expert_slots != 0) {
      result.expert_slots = std::min(result.expert_slots, request.expert_slots);
    }
  }
  std::uint64_t const slots =
      request.expert_slots == 0 ? needs.all_expert_blocks() : request.expert_slots;
  std::uint64_t const floating =
      least.floating_bytes(slots - std::min(slots, least.pinned_experts()));
  result.predicted_peak_bytes = fixed + result.pinned_bytes + std::min(spare, floating);
  return result;
}

}  // namespace terrace::runtime
