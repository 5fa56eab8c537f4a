// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/error.hpp>
#include <terrace/tokenize/vocabulary.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

namespace terrace::tokenize {

/// A run of bytes of the piece that is one token so far.
struct merge_symbol {
  token_id id = 0;
  std::uint32_t begin = 0;  ///< bytes from the start of the piece
  std::uint32_t end = 0;
};

struct merge_result {
  static constexpr std::uint32_t never = std::numeric_limits<std::uint32_t>::max();
  std::uint32_t rank = never;  ///< the lowest rank merges first
  token_id id = 0;
};

/// Memory for one piece after another; saves an allocation per piece.
struct merge_scratch {
  static constexpr std::uint32_t none = std::numeric_limits<std::uint32_t>::max();
  struct node {
    merge_symbol symbol;
    std::uint32_t previous = none;
    std::uint32_t next = none;
    merge_result with_next;  ///< what merging this node with the next one gives; `never` once the
                             ///< node is gone
  };
  std::vector<node> nodes;
  std::vector<std::uint64_t>
      queue;  ///< min-heap of rank << 32 | node: the leftmost of equal ranks comes first
};

namespace detail {

/// Merges the adjacent pair of lowest rank, leftmost first, until none is left; the survivors
/// follow `nodes[0]`. `look_up(left, right)` gives the merge of two neighbours.
/// Cost: O(n log n) look-ups and heap steps for n symbols.
template <class LookUp>
void merge_pairs(merge_scratch& scratch, LookUp&& look_up) {
  auto& nodes = scratch.nodes;
  auto& queue = scratch.queue;
  queue.clear();
  auto const rate = [&](std::uint32_t at) {
    auto& node = nodes[at];
    node.with_next = node.next == merge_scratch::none
                         ? merge_result{}
                         : merge_result{look_up(node.symbol, nodes[node.next].symbol)};
    return node.with_next.rank != merge_result::never;
  };
  auto const entry = [&](std::uint32_t at) {
    return (std::uint64_t{nodes[at].with_next.rank} << 32U) | at;
  };
  for (std::uint32_t at = 0; at < nodes.size(); ++at) {
    if (rate(at)) { queue.push_back(entry(at)); }
  }
  std::make_heap(queue.begin(), queue.end(), std::greater<>{});
  auto const push = [&](std::uint32_t at) {
    if (rate(at)) {
      queue.push_back(entry(at));
      std::push_heap(queue.begin(), queue.end(), std::greater<>{});
    }
  };
  while (!queue.empty()) {
    std::pop_heap(queue.begin(), queue.end(), std::greater<>{});
    std::uint64_t const best = queue.back();
    queue.pop_back();
    auto const at = static_cast<std::uint32_t>(best);
    auto& left = nodes[at];
    if (left.with_next.rank != best >> 32U) {
      continue;
    }  // a neighbour has changed since it was queued
    auto& right = nodes[left.next];
    left.symbol = {left.with_next.id, left.symbol.begin, right.symbol.end};
    left.next = right.next;
    right.with_next = {};
    if (left.next != merge_scratch::none) { nodes[left.next].previous = at; }
    push(at);
    if (left.previous != merge_scratch::none) { push(left.previous); }
  }
}

}  // namespace detail
}  // namespace terrace::tokenize
