// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/evict/detail/block_nodes.hpp>

#include <cstdint>

namespace terrace::evict::detail {

/// Neighbours in a queue; records of queued blocks derive from it.
struct queue_links {
  node_index older = no_node;
  node_index newer = no_node;
};

/// What a policy says about one block met by `block_queue::scan`.
enum class verdict : std::uint8_t {
  refuse,   ///< may not leave now; stays where it is
  requeue,  ///< becomes the newest
  moved,    ///< the policy has already put it into another queue
  take,     ///< this one
};

/// Whether a scan that found nothing among the likely blocks asks every other one too.
enum class effort : std::uint8_t { quick, full };

/// Blocks from oldest to newest, with a scan that stays cheap while many of the oldest may not
/// leave.
///
/// The blocks refused by earlier scans form the old end of the queue, [oldest, fresh). A scan asks
/// again about the 64 oldest of them, then about 64 others in turn, then goes on from `fresh`. So
/// up to 64 refused blocks the answer is exact; beyond that a block that has become free is noticed
/// within (refused / 64) scans, where asking all of them each time would make a long run quadratic.
class block_queue {
 public:
  static constexpr int recheck_limit = 64;

  [[nodiscard]] bool empty() const noexcept { return oldest_ == no_node; }
  [[nodiscard]] node_index oldest() const noexcept { return oldest_; }

  template <class Record>
  void append(block_nodes<Record>& nodes, node_index at) noexcept {
    nodes[at].older = newest_;
    nodes[at].newer = no_node;
    (newest_ == no_node ? oldest_ : nodes[newest_].newer) = at;
    newest_ = at;
    if (fresh_ == no_node) { fresh_ = at; }
  }
  template <class Record>
  void unlink(block_nodes<Record>& nodes, node_index at) noexcept {
    queue_links const links = nodes[at];
    if (fresh_ == at) { fresh_ = links.newer; }
    if (recheck_ == at) { recheck_ = links.newer; }
    (links.older == no_node ? oldest_ : nodes[links.older].newer) = links.newer;
    (links.newer == no_node ? newest_ : nodes[links.newer].older) = links.older;
  }
  template <class Record>
  void make_newest(block_nodes<Record>& nodes, node_index at) noexcept {
    if (at != newest_) { requeue(nodes, at); }
  }

  /// Oldest block that `judge(node_index) -> verdict` takes; it stays in the queue. A judge that
  /// answers `requeue` or `moved` must do so finitely often.
  template <class Record, class Judge>
  [[nodiscard]] node_index scan(block_nodes<Record>& nodes, effort how, Judge&& judge) {
    node_index at = oldest_;
    if (ask(nodes, judge, at) == verdict::take) { return at; }
    bool const asked_all = at == fresh_ || at == no_node;
    if (!asked_all) {
      node_index const rest = at;
      if (recheck_ == no_node || recheck_ == fresh_) { recheck_ = rest; }
      at = recheck_;
      bool const taken = ask(nodes, judge, at) == verdict::take;
      recheck_ = at;
      if (taken) { return at; }
    }
    if (ask_fresh(nodes, judge) == verdict::take) { return fresh_; }
    if (asked_all || how == effort::quick) { return no_node; }
    fresh_ = oldest_;
    recheck_ = no_node;
    return ask_fresh(nodes, judge) == verdict::take ? fresh_ : no_node;
  }

 private:
  template <class Record>
  void requeue(block_nodes<Record>& nodes, node_index at) noexcept {
    unlink(nodes, at);
    append(nodes, at);
  }
  /// Asks about `recheck_limit` formerly refused blocks from `at` on; leaves `at` on the taken or
  /// the next one.
  template <class Record, class Judge>
  [[nodiscard]] verdict ask(block_nodes<Record>& nodes, Judge& judge, node_index& at) {
    for (int asked = 0; asked < recheck_limit && at != fresh_ && at != no_node; ++asked) {
      node_index const next = nodes[at].newer;
      verdict const answer = judge(at);
      if (answer == verdict::take) { return answer; }
      if (answer == verdict::requeue) { requeue(nodes, at); }
      at = next;
    }
    return verdict::refuse;
  }
  /// Asks from `fresh_` to the newest; leaves `fresh_` on the taken block.
  template <class Record, class Judge>
  [[nodiscard]] verdict ask_fresh(block_nodes<Record>& nodes, Judge& judge) {
    while (fresh_ != no_node) {
      node_index const at = fresh_;
      verdict const answer = judge(at);
      if (answer == verdict::take) { return answer; }
      if (answer == verdict::refuse) { fresh_ = nodes[at].newer; }
      if (answer == verdict::requeue) { requeue(nodes, at); }
    }
    return verdict::refuse;
  }

  node_index oldest_ = no_node;
  node_index newest_ = no_node;
  node_index fresh_ = no_node;  ///< oldest block no scan has refused since it was appended
  node_index recheck_ =
      no_node;  ///< next formerly refused block to ask about, beyond the oldest 64
};

}  // namespace terrace::evict::detail
