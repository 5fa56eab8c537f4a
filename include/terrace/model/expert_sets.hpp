// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/chain/any_store.hpp>
#include <terrace/chain/lease.hpp>
#include <terrace/core/ids.hpp>
#include <terrace/core/stream_ref.hpp>

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

namespace terrace::model {

namespace detail {

[[nodiscard]] inline lease lease_experts(any_store& store,
                                         stream_ref on,
                                         layer_id layer,
                                         std::span<expert_id const> experts) {
  std::vector<block_id> ids;
  ids.reserve(experts.size());
  for (auto const one : experts) { ids.push_back(expert_block(layer, one)); }
  return store.acquire(on, ids);
}

}  // namespace detail

/// Leases experts of a layer, for work on `on`, in sets that fit, the next set being read while one
/// computes, and calls compute(first, count, lease) for each: the set is experts[first, first +
/// count), its members may still be on their way.
///
/// Sets hold all experts when they fit at once and `most_together` allows, else up to 32, so that
/// kept outputs stay small beside the experts themselves.
/// Errors: what the store and compute throw.
template <class Compute>
void for_each_expert_set(any_store& store,
                         stream_ref on,
                         layer_id layer,
                         std::span<expert_id const> experts,
                         std::size_t most_together,
                         Compute&& compute) {
  static constexpr std::size_t usual_set = 32;
  std::size_t const room =
      std::max<std::size_t>(store.room_for(expert_block(layer, experts.front())), 1);
  bool const all_fit = experts.size() <= room && experts.size() <= most_together;
  std::size_t const set_size =
      all_fit ? experts.size() : std::clamp<std::size_t>(room / 2, 1, usual_set);
  bool const overlap = room >= 2 * set_size;
  auto const set_at = [&](std::size_t first) {
    return first < experts.size()
               ? experts.subspan(first, std::min(set_size, experts.size() - first))
               : std::span<expert_id const>{};
  };
  lease current = detail::lease_experts(store, on, layer, set_at(0));
  for (std::size_t first = 0; first < experts.size(); first += set_size) {
    auto const following = set_at(first + set_size);
    lease next;
    if (overlap && !following.empty()) {
      next = detail::lease_experts(store, on, layer, following);
    }
    compute(first, set_at(first).size(), std::as_const(current));
    current.release();
    if (!overlap && !following.empty()) {
      next = detail::lease_experts(store, on, layer, following);
    }
    current = std::move(next);
  }
}

/// Calls compute(members) for the members of a set that are here, then for the others as they
/// arrive, until each was given once.
template <class Compute>
void compute_as_they_arrive(lease const& leased, std::size_t count, Compute&& compute) {
  std::vector<std::size_t> waiting(count);
  for (std::size_t i = 0; i < count; ++i) { waiting[i] = i; }
  while (!waiting.empty()) {
    std::vector<std::size_t> here, later;
    for (auto const i : waiting) { (leased.arrived(i) ? here : later).push_back(i); }
    if (here.empty()) {
      here.push_back(later.front());
      later.erase(later.begin());
    }
    for (auto const i : here) { leased.wait(i); }
    compute(std::span<std::size_t const>{here});
    waiting = std::move(later);
  }
}

}  // namespace terrace::model
