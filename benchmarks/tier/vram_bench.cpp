// SPDX-License-Identifier: Apache-2.0
// How fast blocks move between main memory and a device: through a store in which every access
// misses, beside plain copies of the same sizes.
#include "tier/temporary_file.hpp"

#include <terrace/chain/store.hpp>
#include <terrace/chain/tier_chain.hpp>
#include <terrace/copy/nvme_to_pinned.hpp>
#include <terrace/copy/nvme_to_vram.hpp>
#include <terrace/copy/pinned_to_vram.hpp>
#include <terrace/copy/vram_to_pinned.hpp>
#include <terrace/core/units.hpp>
#include <terrace/evict/lru.hpp>
#include <terrace/shim/cuda.hpp>
#include <terrace/shim/cuda_memory.hpp>
#include <terrace/shim/cuda_tickets.hpp>
#include <terrace/tier/pinned.hpp>
#include <terrace/tier/vram.hpp>

#include <benchmark/benchmark.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace {

using namespace terrace;

constexpr std::size_t blocks_in_host = 128;
constexpr std::size_t blocks_on_device = 48;
constexpr std::size_t set_size = 8;  // experts of a layer that miss together

/// Blocks of experts that lie one after the other in a file.
std::vector<block_info> blocks_of(std::size_t bytes) {
  std::vector<block_info> all;
  for (std::size_t i = 0; i < blocks_in_host; ++i) {
    all.push_back({.id = expert_block(layer_id{0}, expert_id{static_cast<std::uint16_t>(i)}),
                   .names = {"blk.0.ffn_gate_exps.weight"},
                   .bytes = bytes,
                   .extents = {{.from = {file_id{0}, i * bytes, bytes}, .to_offset = 0}},
                   .matrices = {}});
  }
  return all;
}

/// Sets of blocks are leased in turn, so that the least recently used is always the next needed.
void misses(benchmark::State& state, std::size_t bytes) {
  if (shim::device_count() == 0) { return state.SkipWithError("this machine has no CUDA device"); }
  test::temporary_file const file;
  std::filesystem::resize_file(file.path(), blocks_in_host * bytes);
  auto const blocks = blocks_of(bytes);
  using device_level = level<vram, evict::lru>;
  using host_level = level<pinned, evict::lru>;
  using chain = tier_chain<device_level, host_level, home<nvme>>;
  shim::ticket_source const tickets{0};
  auto const stream = shim::make_stream(0);
  stream_ref const on{stream.get()};
  store<chain> all{
      chain{device_level{.memory = vram{blocks_on_device * bytes}, .evict = evict::lru{{}}},
            host_level{.memory = pinned{blocks_in_host * bytes}, .evict = evict::lru{{}}},
            home<nvme>{nvme{{file.path()}, {}}}},
      blocks,
      {},
      {.placements = {}, .work_so_far = [&](stream_ref one) { return tickets.after(one); }}};
  std::size_t next = 0;
  auto const lease_set = [&] {
    std::vector<block_id> ids;
    for (std::size_t i = 0; i < set_size; ++i) {
      ids.push_back(blocks[next].id);
      next = (next + 1) % blocks.size();
    }
    all.acquire(on, ids).wait_all();
  };
  for (std::size_t i = 0; i < blocks_in_host / set_size; ++i) { lease_set(); }
  for (auto _ : state) { lease_set(); }
  state.SetBytesProcessed(static_cast<std::int64_t>(set_size * bytes) * state.iterations());
}

/// Plain copies of the same sizes from one pinned buffer to one on the device.
void plain_copies(benchmark::State& state, std::size_t bytes) {
  if (shim::device_count() == 0) { return state.SkipWithError("this machine has no CUDA device"); }
  auto const stream = shim::make_stream(0);
  stream_ref const on{stream.get()};
  auto const from = shim::make_pinned_buffer(0, blocks_on_device * bytes);
  auto const to = shim::make_device_buffer(0, blocks_on_device * bytes);
  std::size_t next = 0;
  for (auto _ : state) {
    for (std::size_t i = 0; i < set_size; ++i) {
      shim::copy(on, to.data() + next * bytes, from.data() + next * bytes, bytes);
      next = (next + 1) % blocks_on_device;
    }
    shim::synchronize(on);
  }
  state.SetBytesProcessed(static_cast<std::int64_t>(set_size * bytes) * state.iterations());
}

constexpr std::size_t kimi_k3_expert = 17'547'264;
constexpr std::size_t kimi_k2_expert = 24'772'608;  // Q4_K

BENCHMARK_CAPTURE(plain_copies, kimi_k3, kimi_k3_expert)
    ->Name("tier/copy/pinned_to_vram/plain/bytes:17547264")
    ->UseRealTime();
BENCHMARK_CAPTURE(misses, kimi_k3, kimi_k3_expert)
    ->Name("tier/copy/pinned_to_vram/store/bytes:17547264")
    ->UseRealTime();
BENCHMARK_CAPTURE(plain_copies, kimi_k2, kimi_k2_expert)
    ->Name("tier/copy/pinned_to_vram/plain/bytes:24772608")
    ->UseRealTime();
BENCHMARK_CAPTURE(misses, kimi_k2, kimi_k2_expert)
    ->Name("tier/copy/pinned_to_vram/store/bytes:24772608")
    ->UseRealTime();

}  // namespace
