// SPDX-License-Identifier: Apache-2.0
// An eviction policy from nothing: drop what was used last. A dense model under a small cap reads
// its layers round and round; there the block just used is the one needed again latest, and the
// least recently used one is needed next.

#include "stand_in_model.hpp"

#include <terrace/chain/store.hpp>
#include <terrace/chain/tier_chain.hpp>
#include <terrace/concepts/eviction_policy.hpp>
#include <terrace/copy/nvme_to_dram.hpp>
#include <terrace/evict/lru.hpp>
#include <terrace/tier/dram.hpp>
#include <terrace/tier/nvme.hpp>

#include <algorithm>
#include <cstdio>
#include <optional>
#include <vector>

using namespace terrace;

/// Evicts the block whose last use is the most recent. Cost: linear in the number of resident
/// blocks.
class most_recent {
 public:
  struct options {};
  explicit most_recent(options) {}

  void admit(block_id id, std::size_t) { by_use_.push_back(id); }
  void touch(block_id id) noexcept {
    auto const at = std::ranges::find(by_use_, id);
    if (at != by_use_.end()) { std::rotate(at, at + 1, by_use_.end()); }
  }
  void forget(block_id id) noexcept { std::erase(by_use_, id); }
  template <class MayLeave>
  std::optional<block_id> victim(MayLeave&& may_leave) {
    auto const at = std::find_if(by_use_.rbegin(), by_use_.rend(), may_leave);
    return at == by_use_.rend() ? std::nullopt : std::optional{*at};
  }
  void tick() noexcept {}

 private:
  std::vector<block_id> by_use_;  ///< latest use last
};
static_assert(eviction_policy<most_recent>);

/// Hits of a policy while 8 blocks are read round and round with room for 4.
template <eviction_policy Evict>
std::uint64_t hits_with() {
  stand_in_model const model{8};
  using chain = tier_chain<level<dram, Evict>, home<nvme>>;
  chain tiers{{dram{4 * stand_in_model::expert_bytes}, Evict{{}}}, {nvme{model.files()}}};
  store<chain> weights{std::move(tiers), model.blocks()};
  for (int token = 0; token < 10; ++token) {
    for (auto const& block : model.blocks()) {
      lease const one = weights.acquire(stream_ref::host(), {&block.id, 1});
      one.wait_all();
    }
    weights.tick();
  }
  return weights.counters().front().hits;
}

int main() {
  auto const theirs = hits_with<evict::lru>();
  auto const ours = hits_with<most_recent>();
  std::printf("80 uses: lru hits %llu, most_recent hits %llu\n",
              static_cast<unsigned long long>(theirs),
              static_cast<unsigned long long>(ours));
  return ours > theirs ? 0 : 1;
}
