// SPDX-License-Identifier: Apache-2.0
#include "chain/scripted_tiers.hpp"
#include "support/manual_ticket.hpp"

#include <terrace/admit/second_touch.hpp>
#include <terrace/chain/store.hpp>
#include <terrace/evict/lfu_decay.hpp>
#include <terrace/evict/lru.hpp>
#include <terrace/prefetch/none.hpp>

#include <catch2/catch_message.hpp>
#include <catch2/catch_template_test_macros.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <vector>

namespace {

using namespace terrace;
using terrace::testing::far_tier;
using terrace::testing::heap_tier;
using terrace::testing::home_byte;
using terrace::testing::scripted_home;

using upper = level<heap_tier<0>, evict::lru>;
using lower = level<heap_tier<1>, evict::lfu_decay>;
using one_level = tier_chain<upper, home<scripted_home>>;
using inclusive_pair = tier_chain<upper, lower, home<scripted_home>>;
using exclusive_pair = tier_chain<upper, exclusive<lower>, home<scripted_home>>;

upper upper_of(std::size_t bytes, std::size_t slots = unlimited) {
  return {heap_tier<0>{bytes}, evict::lru{evict::lru::options{}}, {}, slots};
}
lower lower_of(std::size_t bytes) {
  return {heap_tier<1>{bytes}, evict::lfu_decay{evict::lfu_decay::options{}}, {}, unlimited};
}

/// Experts of `sizes[i % sizes.size()]` bytes, each of two extents that are not neighbours.
std::vector<block_info> make_blocks(std::size_t count, std::vector<std::uint64_t> sizes) {
  std::vector<block_info> blocks;
  std::uint64_t offset = 7;
  for (std::size_t i = 0; i < count; ++i) {
    std::uint64_t const bytes = sizes[i % sizes.size()];
    block_info one;
    one.id = expert_block(layer_id{static_cast<std::uint32_t>(i / 8)},
                          expert_id{static_cast<std::uint32_t>(i % 8)});
    one.bytes = bytes;
    one.extents = {{{file_id{0}, offset + 1000000, bytes / 2}, 0},
                   {{file_id{0}, offset, bytes - bytes / 2}, bytes / 2}};
    offset += bytes + 3;
    blocks.push_back(std::move(one));
  }
  return blocks;
}

bool holds_its_bytes(block_view const& view) {
  for (auto const& piece : view.info->extents) {
    for (std::uint64_t i = 0; i < piece.from.bytes; ++i) {
      if (view.address[piece.to_offset + i] != home_byte(piece.from.offset + i)) { return false; }
    }
  }
  return true;
}

template <class Chain>
Chain make_chain(std::shared_ptr<scripted_home::script> script, std::size_t up, std::size_t low) {
  if constexpr (Chain::level_count == 1) {
    return Chain{upper_of(up), home<scripted_home>{scripted_home{script}}};
  } else if constexpr (std::is_same_v<Chain, exclusive_pair>) {
    return Chain{
        upper_of(up), exclusive<lower>{lower_of(low)}, home<scripted_home>{scripted_home{script}}};
  } else {
    return Chain{upper_of(up), lower_of(low), home<scripted_home>{scripted_home{script}}};
  }
}

auto script_of(int polls = 3) {
  auto script = std::make_shared<scripted_home::script>();
  script->polls_until_done = polls;
  return script;
}

std::vector<block_id> ids_of(std::vector<block_info> const& blocks,
                             std::vector<std::size_t> numbers) {
  std::vector<block_id> ids;
  for (auto const n : numbers) { ids.push_back(blocks[n].id); }
  return ids;
}

}  // namespace

TEMPLATE_TEST_CASE("a random walk keeps the byte identity, the cap and the bytes after every step",
                   "[chain]",
                   one_level,
                   inclusive_pair,
                   exclusive_pair) {
  auto const seed = GENERATE(1U, 2U, 3U);
  CAPTURE(seed);
  std::mt19937 random{seed};
  auto const blocks = make_blocks(40, {128, 192, 320});
  std::size_t const up = 2048;
  store<TestType> tested{make_chain<TestType>(script_of(), up, 1536), blocks};
  std::vector<lease> held;
  for (int step = 0; step < 1500; ++step) {
    auto const action = random() % 10;
    if (action < 5 && held.size() < 3) {
      std::vector<std::size_t> numbers;
      while (numbers.size() < 1 + random() % 2) {
        auto const n = random() % blocks.size();
        if (std::find(numbers.begin(), numbers.end(), n) == numbers.end()) { numbers.push_back(n); }
      }
      held.push_back(tested.acquire(stream_ref::host(), ids_of(blocks, numbers)));
      if (random() % 4 != 0) {
        held.back().wait_all();
        for (std::size_t i = 0; i < held.back().size(); ++i) {
          REQUIRE(holds_its_bytes(held.back()[i]));
        }
      }
    } else if (action < 8 && !held.empty()) {
      held.erase(held.begin() + static_cast<std::ptrdiff_t>(random() % held.size()));
    } else if (action == 8) {
      auto const ids = ids_of(blocks, {random() % blocks.size(), random() % blocks.size()});
      tested.prefetch(ids);
    } else {
      tested.tick();
    }
    REQUIRE(tested.audit().holds());
    for (auto const& one : tested.counters()) {
      if (one.capacity_bytes > 0) { REQUIRE(one.peak_bytes <= one.capacity_bytes); }
    }
  }
  held.clear();
  auto const all = tested.counters();
  CHECK(all.front().hits > 0);
  CHECK(all.front().evictions > 0);
  CHECK(all.front().bytes_in > 0);
}

TEST_CASE("the misses of a set are in flight together", "[chain]") {
  auto script = script_of();
  auto const blocks = make_blocks(8, {256});
  store<one_level> tested{make_chain<one_level>(script, 8192, 0), blocks};
  auto const leased = tested.acquire(stream_ref::host(), ids_of(blocks, {0, 1, 2, 3}));
  CHECK(script->most_in_flight == 4);
  CHECK_FALSE(leased.arrived(0));
  leased.wait(3);
  CHECK(holds_its_bytes(leased[3]));
  leased.wait_all();
  CHECK(tested.counters().front().misses == 4);
}

TEST_CASE("a leased block is never evicted", "[chain]") {
  auto const blocks = make_blocks(16, {256});
  store<one_level> tested{make_chain<one_level>(script_of(), 1024, 0), blocks};
  auto const kept = tested.acquire(stream_ref::host(), ids_of(blocks, {0, 1}));
  kept.wait_all();
  for (std::size_t n = 2; n < 16; ++n) {
    auto const other = tested.acquire(stream_ref::host(), ids_of(blocks, {n}));
    other.wait_all();
    REQUIRE(holds_its_bytes(kept[0]));
    REQUIRE(holds_its_bytes(kept[1]));
  }
}

TEST_CASE("a set that cannot be held is refused with numbers and leaves nothing leased",
          "[chain]") {
  auto const blocks = make_blocks(16, {256});
  store<one_level> tested{make_chain<one_level>(script_of(), 1024, 0), blocks};
  {
    auto const kept = tested.acquire(stream_ref::host(), ids_of(blocks, {0}));
    CHECK(tested.room_for(blocks[1].id) == 3);
    try {
      auto const refused = tested.acquire(stream_ref::host(), ids_of(blocks, {1, 2, 3, 4}));
      FAIL("the set was accepted");
    } catch (out_of_capacity const& refusal) {
      CHECK(refusal.needed_bytes() == 5 * 256);
      CHECK(refusal.capacity_bytes() == 1024);
    }
    CHECK(tested.room_for(blocks[1].id) == 3);
  }
  auto const fits = tested.acquire(stream_ref::host(), ids_of(blocks, {1, 2, 3, 4}));
  fits.wait_all();
  CHECK(holds_its_bytes(fits[3]));
}

TEST_CASE("expert slots limit experts below the byte cap", "[chain]") {
  auto const blocks = make_blocks(16, {256});
  store<one_level> tested{
      one_level{upper_of(8192, 2), home<scripted_home>{scripted_home{script_of()}}}, blocks};
  for (std::size_t n = 0; n < 8; ++n) {
    auto const one = tested.acquire(stream_ref::host(), ids_of(blocks, {n}));
    one.wait_all();
  }
  CHECK(tested.counters().front().peak_bytes == 2 * 256);
  CHECK(tested.room_for(blocks[0].id) == 2);
  CHECK_THROWS_AS(tested.acquire(stream_ref::host(), ids_of(blocks, {0, 1, 2})), out_of_capacity);
}

TEST_CASE("a failed read is reported to whoever waits and the block can be read again",
          "[chain][fault]") {
  auto script = script_of();
  auto const blocks = make_blocks(4, {256});
  script->failing_offset = blocks[1].extents[0].from.offset + 5;
  store<one_level> tested{make_chain<one_level>(script, 2048, 0), blocks};
  {
    auto const leased = tested.acquire(stream_ref::host(), ids_of(blocks, {0, 1}));
    leased.wait(0);
    CHECK_THROWS_AS(leased.wait(1), io_error);
    CHECK_THROWS_AS(leased.wait(1), io_error);
    CHECK(tested.audit().holds());
  }
  script->failing_offset = UINT64_MAX;
  auto const again = tested.acquire(stream_ref::host(), ids_of(blocks, {1}));
  again.wait_all();
  CHECK(holds_its_bytes(again[0]));
}

TEST_CASE("an inclusive lower level serves what the upper one evicted", "[chain]") {
  auto script = script_of();
  auto const blocks = make_blocks(8, {256});
  store<inclusive_pair> tested{make_chain<inclusive_pair>(script, 512, 4096), blocks};
  for (int round = 0; round < 2; ++round) {
    for (std::size_t n = 0; n < 8; ++n) {
      auto const one = tested.acquire(stream_ref::host(), ids_of(blocks, {n}));
      one.wait_all();
      REQUIRE(holds_its_bytes(one[0]));
    }
  }
  CHECK(script->reads_started == 8);
  CHECK(tested.counters()[1].hits == 8);
  CHECK(tested.audit().copies == 512);
}

TEST_CASE("an exclusive lower level adds its capacity to the upper one's", "[chain]") {
  auto script = script_of();
  auto const blocks = make_blocks(8, {256});
  store<exclusive_pair> tested{make_chain<exclusive_pair>(script, 1024, 1280),
                               blocks};  // one slot to swap through
  for (int round = 0; round < 3; ++round) {
    for (std::size_t n = 0; n < 8; ++n) {
      auto const one = tested.acquire(stream_ref::host(), ids_of(blocks, {n}));
      one.wait_all();
      REQUIRE(holds_its_bytes(one[0]));
      auto const audit = tested.audit();
      REQUIRE(audit.holds());
      REQUIRE(audit.copies == 0);
    }
  }
  CHECK(tested.audit().distinct == 8 * 256);
  CHECK(script->reads_started == 8);
}

TEST_CASE("a block placed at home is not kept, one placed lower is read there", "[chain]") {
  auto script = script_of();
  auto const blocks = make_blocks(4, {256});
  store_options options;
  options.placements = {{blocks[0].id, 2}, {blocks[1].id, 1}};
  store<inclusive_pair> tested{make_chain<inclusive_pair>(script, 1024, 1024), blocks, {}, options};
  for (int round = 0; round < 3; ++round) {
    auto const both = tested.acquire(stream_ref::host(), ids_of(blocks, {0, 1}));
    both.wait_all();
    CHECK(holds_its_bytes(both[0]));
    CHECK(holds_its_bytes(both[1]));
  }
  CHECK(script->reads_started == 3 + 1);
  auto const all = tested.counters();
  CHECK(all[0].used_bytes == 0);
  CHECK(all[1].used_bytes == 256);
}

TEST_CASE("sequence state displaces weights and is given back", "[chain]") {
  auto const blocks = make_blocks(8, {256});
  store<one_level> tested{make_chain<one_level>(script_of(), 1024, 0), blocks};
  for (std::size_t n = 0; n < 4; ++n) {
    tested.acquire(stream_ref::host(), ids_of(blocks, {n})).wait_all();
  }
  auto const page = make_block_id(block_kind::kv_page, layer_id{0}, 0);
  std::byte* state = tested.reserve_state(page, 700);
  CHECK(std::all_of(state, state + 700, [](std::byte one) { return one == std::byte{0}; }));
  CHECK(tested.audit().holds());
  CHECK(tested.room_for(blocks[0].id) == 1);
  CHECK_THROWS_AS(tested.reserve_state(make_block_id(block_kind::kv_page, layer_id{0}, 1), 512),
                  out_of_capacity);
  tested.release_state(page);
  CHECK(tested.room_for(blocks[0].id) == 4);
  CHECK(tested.audit().holds());
}

TEST_CASE("a tier that the host may not write zeroes sequence state itself", "[chain]") {
  using far_chain = tier_chain<level<far_tier, evict::lru>, home<scripted_home>>;
  auto const blocks = make_blocks(4, {256});
  store<far_chain> tested{far_chain{{far_tier{4096}, evict::lru{{}}}, {scripted_home{script_of()}}},
                          blocks};
  auto const page = make_block_id(block_kind::kv_page, layer_id{0}, 0);
  CHECK_THROWS_AS(tested.reserve_state(page, 2000), cuda_error);
  CHECK(tested.counters().front().used_bytes == 0);
  CHECK(tested.audit().holds());
  std::byte* state = tested.reserve_state(page, 700);
  CHECK(std::all_of(state, state + 700, [](std::byte one) { return one == std::byte{0}; }));
  CHECK(tested.audit().holds());
}

TEST_CASE("a store says what may be done with the memory a block is read from", "[chain]") {
  using far_over_near =
      tier_chain<level<far_tier, evict::lru>, level<heap_tier<1>, evict::lru>, home<scripted_home>>;
  auto const blocks = make_blocks(3, {256});
  store_options options;
  options.placements = {{blocks[1].id, 1}, {blocks[2].id, 2}};
  store<far_over_near> const tested{far_over_near{{far_tier{1024}, evict::lru{{}}},
                                                  {heap_tier<1>{1024}, evict::lru{{}}},
                                                  {scripted_home{script_of()}}},
                                    blocks,
                                    {},
                                    options};
  CHECK(tested.traits_of(blocks[0].id).device_local);
  CHECK_FALSE(tested.traits_of(blocks[1].id).device_local);
  CHECK(tested.traits_of(blocks[1].id).host_readable);
  CHECK(tested.traits_of(blocks[2].id).device_local);  // passes through the fastest level
  CHECK_THROWS_AS(tested.traits_of(make_block_id(block_kind::expert, layer_id{90}, 0)),
                  contract_error);
}

TEST_CASE("prefetched blocks become hits and do not break a minimal capacity", "[chain]") {
  auto const blocks = make_blocks(8, {256});
  store<one_level> tested{make_chain<one_level>(script_of(), 512, 0), blocks};
  CHECK(tested.prefetch(ids_of(blocks, {0, 1})) == 2);
  CHECK(tested.prefetch(ids_of(blocks, {2})) == 0);
  {
    auto const used = tested.acquire(stream_ref::host(), ids_of(blocks, {0}));
    used.wait_all();
    CHECK(holds_its_bytes(used[0]));
  }
  auto const both = tested.acquire(stream_ref::host(), ids_of(blocks, {4, 5}));
  both.wait_all();
  CHECK(holds_its_bytes(both[1]));
  auto const top = tested.counters().front();
  CHECK(top.prefetched == 2);
  CHECK(top.prefetch_used == 1);
  CHECK(top.hits == 1);
}

TEST_CASE("an unknown block is refused before anything is leased", "[chain]") {
  auto const blocks = make_blocks(2, {256});
  store<one_level> tested{make_chain<one_level>(script_of(), 512, 0), blocks};
  std::vector<block_id> const ids{blocks[0].id, expert_block(layer_id{9}, expert_id{9})};
  CHECK_THROWS_AS(tested.acquire(stream_ref::host(), ids), contract_error);
  CHECK(tested.room_for(blocks[0].id) == 2);
}

namespace {

/// A stream that is only a name: the tests end its work by hand.
stream_ref named_stream() { return stream_ref{reinterpret_cast<CUstream_st*>(std::uintptr_t{64})}; }

/// Keeps what it is told.
class table_copy final : public residency_watcher {
 public:
  void arrived(block_info const& block, std::byte const* address) override {
    CHECK(here.emplace(static_cast<std::uint64_t>(block.id), address).second);
  }
  void leaving(block_id id) noexcept override { here.erase(static_cast<std::uint64_t>(id)); }
  std::map<std::uint64_t, std::byte const*> here;
};

}  // namespace

TEST_CASE("a lease on a stream ends when the stream's work does", "[chain]") {
  auto const blocks = make_blocks(4, {256});
  std::vector<terrace::test::manual_ticket> work;
  store<one_level> tested{make_chain<one_level>(script_of(), 512, 0),
                          blocks,
                          {},
                          {.placements = {}, .work_so_far = [&](stream_ref) {
                             work.emplace_back();
                             return work.back().get();
                           }}};
  auto const id = [&](std::size_t n) { return ids_of(blocks, {n}); };
  { tested.acquire(named_stream(), ids_of(blocks, {0, 1})).wait_all(); }
  REQUIRE(work.size() == 1);

  CHECK(tested.prefetch(id(2)) == 0);         // both slots are still being read
  CHECK(tested.room_for(blocks[2].id) == 2);  // but whoever waits gets them
  bool waited = false;
  work[0].when_waited([&] {
    waited = true;
    work[0].complete();
  });
  auto const third = tested.acquire(stream_ref::host(), id(2));
  CHECK(waited);
  third.wait_all();
  CHECK(holds_its_bytes(third[0]));
  CHECK(tested.audit().holds());
}

TEST_CASE("a block leased again on a stream stays until its last work is done", "[chain]") {
  auto const blocks = make_blocks(4, {256});
  std::vector<terrace::test::manual_ticket> work;
  store<one_level> tested{make_chain<one_level>(script_of(), 512, 0),
                          blocks,
                          {},
                          {.placements = {}, .work_so_far = [&](stream_ref) {
                             work.emplace_back();
                             return work.back().get();
                           }}};
  { tested.acquire(named_stream(), ids_of(blocks, {0, 1})).wait_all(); }
  { tested.acquire(named_stream(), ids_of(blocks, {0})).wait_all(); }
  REQUIRE(work.size() == 2);
  work[0].complete();
  CHECK(tested.prefetch(ids_of(blocks, {2})) == 1);  // in place of block 1; block 0 is in use
  CHECK(tested.prefetch(ids_of(blocks, {3})) == 0);
  work[1].complete();
  auto const both = tested.acquire(stream_ref::host(), ids_of(blocks, {2, 3}));
  both.wait_all();
  CHECK(holds_its_bytes(both[0]));
  CHECK(holds_its_bytes(both[1]));
  CHECK(tested.audit().holds());
}

TEST_CASE("a lease on a stream is refused by a store that cannot follow streams", "[chain]") {
  auto const blocks = make_blocks(2, {256});
  store<one_level> tested{make_chain<one_level>(script_of(), 512, 0), blocks};
  CHECK_THROWS_AS(tested.acquire(named_stream(), ids_of(blocks, {0})), contract_error);
}

TEMPLATE_TEST_CASE("a watcher's copy of the residency table is right after every step",
                   "[chain]",
                   one_level,
                   inclusive_pair,
                   exclusive_pair) {
  std::mt19937 random{5};
  auto const blocks = make_blocks(40, {128, 192, 320});
  store<TestType> tested{make_chain<TestType>(script_of(), 2048, 1536), blocks};
  table_copy copy;
  for (int step = 0; step < 600; ++step) {
    if (step == 100) { tested.watch(&copy); }  // sees what is here already
    auto const ids = ids_of(blocks, {random() % blocks.size()});
    if (random() % 4 == 0) {
      tested.prefetch(ids);
      continue;
    }
    auto const leased = tested.acquire(stream_ref::host(), ids);
    leased.wait_all();
    if (step < 100) { continue; }
    auto const found = copy.here.find(static_cast<std::uint64_t>(ids.front()));
    REQUIRE(found != copy.here.end());
    REQUIRE(found->second == leased[0].address);
    for (auto const& [id, address] : copy.here) {
      auto const block = std::find_if(blocks.begin(), blocks.end(), [&](auto const& one) {
        return static_cast<std::uint64_t>(one.id) == id;
      });
      REQUIRE(holds_its_bytes({&*block, address}));
    }
  }
  tested.watch(nullptr);
}
