// SPDX-License-Identifier: Apache-2.0
// Copies into and out of a pmem tier, on a file in memory: the cost of the stores, not of the
// medium. Run again with PMEM2_FORCE_GRANULARITY=CACHE_LINE for the non-temporal ones.
#include "tier/temporary_file.hpp"

#include <terrace/core/units.hpp>
#include <terrace/tier/pmem.hpp>

#include <benchmark/benchmark.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#if defined(TERRACE_HAS_PMEM2)

namespace {

using namespace terrace;

constexpr std::size_t block_bytes = 16 * mib;

void store_block(benchmark::State& state) {
  test::temporary_file const file{"/dev/shm"};
  pmem tier{{file.path(), 8 * block_bytes}};
  std::vector<std::byte> const block(block_bytes, std::byte{1});
  std::vector<pmem::handle> slots;
  while (auto const at = tier.try_allocate(block_bytes)) { slots.push_back(*at); }
  std::size_t next = 0;
  for (auto _ : state) {
    tier.store(tier.address(slots[next++ % slots.size()]), block.data(), block_bytes);
  }
  state.SetBytesProcessed(static_cast<std::int64_t>(block_bytes) * state.iterations());
  state.SetLabel(tier.mode());
}
BENCHMARK(store_block)->Name("tier/store/pmem/block:16MiB")->Unit(benchmark::kMillisecond);

void load_block(benchmark::State& state) {
  test::temporary_file const file{"/dev/shm"};
  pmem tier{{file.path(), 8 * block_bytes}};
  std::vector<std::byte> block(block_bytes, std::byte{1});
  std::vector<pmem::handle> slots;
  while (auto const at = tier.try_allocate(block_bytes)) {
    tier.store(tier.address(*at), block.data(), block_bytes);
    slots.push_back(*at);
  }
  std::size_t next = 0;
  for (auto _ : state) {
    std::memcpy(block.data(), tier.address(slots[next++ % slots.size()]), block_bytes);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(static_cast<std::int64_t>(block_bytes) * state.iterations());
}
BENCHMARK(load_block)->Name("tier/load/pmem/block:16MiB")->Unit(benchmark::kMillisecond);

}  // namespace

#endif
