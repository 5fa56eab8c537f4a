// SPDX-License-Identifier: Apache-2.0
// A chain of two levels: main memory over a file. Blocks are leased in sets; what is not here is
// read together.

#include "stand_in_model.hpp"

#include <terrace/chain/store.hpp>
#include <terrace/chain/tier_chain.hpp>
#include <terrace/copy/nvme_to_dram.hpp>
#include <terrace/core/units.hpp>
#include <terrace/evict/lfu_decay.hpp>
#include <terrace/tier/dram.hpp>
#include <terrace/tier/nvme.hpp>

#include <cstdio>
#include <vector>

using namespace terrace;

using chain = tier_chain<level<dram, evict::lfu_decay>, home<nvme>>;

int main() {
  stand_in_model const model{16};

  // Sizes and paths are values: room for 4 of the 16 experts.
  chain tiers{{dram{4 * stand_in_model::expert_bytes}, evict::lfu_decay{{}}},
              {nvme{model.files()}}};
  store<chain> weights{std::move(tiers), model.blocks()};

  bool right = true;
  for (std::uint32_t token = 0; token < 20; ++token) {
    // What a router might say: one favourite and one that changes.
    std::vector const experts{expert_block(layer_id{0}, expert_id{0}),
                              expert_block(layer_id{0}, expert_id{1 + token % 15})};
    lease const set = weights.acquire(stream_ref::host(), experts);
    for (std::size_t i = 0; i < set.size(); ++i) {
      set.wait(i);  // compute what has arrived while the rest flies: arrived(i) polls
      right &= set[i].address[0] == static_cast<std::byte>(index_of(experts[i]));
    }
    weights.tick();
  }

  for (auto const& tier : weights.counters()) {
    std::printf("%-5s %llu hits, %llu misses, %s read into it, at most %s held (%s)\n",
                tier.name.c_str(),
                static_cast<unsigned long long>(tier.hits),
                static_cast<unsigned long long>(tier.misses),
                format_size(tier.bytes_in).c_str(),
                format_size(tier.peak_bytes).c_str(),
                tier.mode.c_str());
  }
  bool const capped = weights.counters()[0].peak_bytes <= 4 * stand_in_model::expert_bytes;
  return right && capped && weights.audit().holds() ? 0 : 1;
}
