// SPDX-License-Identifier: Apache-2.0
// A tier from nothing: memory taken once at the start and cut into equal slots, so that nothing is
// allocated later.

#include "stand_in_model.hpp"

#include <terrace/chain/store.hpp>
#include <terrace/chain/tier_chain.hpp>
#include <terrace/concepts/copy_path.hpp>
#include <terrace/concepts/memory_tier.hpp>
#include <terrace/evict/lru.hpp>
#include <terrace/tier/nvme.hpp>

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

using namespace terrace;

class slots {
 public:
  using handle = std::uint32_t;  // a slot number; any small value will do
  static constexpr std::string_view name = "slots";
  static constexpr std::size_t slot_bytes = stand_in_model::expert_bytes;
  static constexpr tier_traits traits{.host_readable = true, .granularity = slot_bytes};

  explicit slots(std::uint32_t count) : memory_(count * slot_bytes) {
    while (count > 0) { free_.push_back(--count); }
  }

  std::size_t capacity_bytes() const noexcept { return memory_.size(); }
  std::size_t used_bytes() const noexcept { return memory_.size() - free_.size() * slot_bytes; }
  std::optional<handle> try_allocate(std::size_t bytes) {
    if (bytes > slot_bytes || free_.empty()) { return std::nullopt; }
    handle const slot = free_.back();
    free_.pop_back();
    return slot;
  }
  void deallocate(handle slot, std::size_t) noexcept { free_.push_back(slot); }
  std::byte* address(handle slot) noexcept { return memory_.data() + slot * slot_bytes; }

 private:
  std::vector<std::byte> memory_;
  std::vector<handle> free_;
};
static_assert(host_readable_tier<slots>);

/// How bytes get there. Every level of a chain needs a path from the chain's home.
template <home_tier Home>
struct terrace::copy_path<Home, slots> {
  static ticket start(Home& home, std::span<block_extent const> from, slots& to, slots::handle at) {
    std::vector<file_read> reads;
    for (auto const& part : from) { reads.push_back({part.from, to.address(at) + part.to_offset}); }
    return home.read(reads);
  }
};

int main() {
  stand_in_model const model{8};
  using chain = tier_chain<level<slots, evict::lru>, home<nvme>>;
  store<chain> weights{chain{{slots{3}, evict::lru{{}}}, {nvme{model.files()}}}, model.blocks()};

  bool right = true;
  for (auto const& block : model.blocks()) {
    lease const one = weights.acquire(stream_ref::host(), {&block.id, 1});
    one.wait_all();
    right &= one[0].address[slots::slot_bytes - 1] == static_cast<std::byte>(index_of(block.id));
  }
  auto const counted = weights.counters().front();
  return right && counted.evictions == 5 && weights.audit().holds() ? 0 : 1;
}
