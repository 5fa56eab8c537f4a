// SPDX-License-Identifier: Apache-2.0
// What a slot costs, and how fast one core reads main memory.
#include <terrace/core/units.hpp>
#include <terrace/shim/anonymous_memory.hpp>
#include <terrace/tier/dram.hpp>

#include <benchmark/benchmark.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

namespace {

using namespace terrace;

/// A full tier lets one block go and takes another of the same size.
void replace_same_size(benchmark::State& state) {
  constexpr std::size_t bytes = 17 * mib;
  dram tier{82'432 * bytes};
  std::vector<dram::handle> live;
  while (auto const at = tier.try_allocate(bytes)) { live.push_back(*at); }
  std::size_t next = 0;
  for (auto _ : state) {
    tier.deallocate(live[next], bytes);
    live[next] = *tier.try_allocate(bytes);
    next = (next + 7919) % live.size();
  }
}
BENCHMARK(replace_same_size)->Name("tier/replace/dram/blocks:82432");

/// Every block needs room that a kept slot of another size holds.
void change_size(benchmark::State& state) {
  std::size_t sizes[] = {mib, 3 * mib};
  dram tier{3 * mib};
  for (auto _ : state) {
    auto const at = *tier.try_allocate(sizes[0]);
    tier.address(at)[0] = std::byte{1};
    tier.deallocate(at, sizes[0]);
    std::swap(sizes[0], sizes[1]);
  }
}
BENCHMARK(change_size)->Name("tier/replace/dram/sizes:2");

/// A plain sum over memory far larger than the last-level cache.
void read_memory(benchmark::State& state) {
  constexpr std::size_t bytes = gib;
  dram tier{bytes,
            {.pages = state.range(0) != 0 ? shim::page_kind::transparent_huge
                                          : shim::page_kind::ordinary}};
  auto const at = *tier.try_allocate(bytes);
  std::memset(tier.address(at), 1, bytes);
  auto const* const words = reinterpret_cast<std::uint64_t const*>(tier.address(at));
  for (auto _ : state) {
    std::uint64_t sum[8] = {};
    for (std::size_t i = 0; i < bytes / 8; i += 8) {
      for (std::size_t lane = 0; lane < 8; ++lane) { sum[lane] += words[i + lane]; }
    }
    benchmark::DoNotOptimize(sum);
  }
  state.SetBytesProcessed(static_cast<std::int64_t>(bytes) * state.iterations());
}
BENCHMARK(read_memory)
    ->Name("tier/read/dram")
    ->ArgName("huge_pages")
    ->Arg(0)
    ->Arg(1)
    ->Unit(benchmark::kMillisecond);

}  // namespace
