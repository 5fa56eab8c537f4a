// SPDX-License-Identifier: Apache-2.0
/// How fast experts arrive that main memory lacks: `depth` blocks a set, all of them missing,
/// through a store over a chain of main memory and the file.
#include "../tier/rate_command.hpp"

#include <terrace/chain/store.hpp>
#include <terrace/chain/tier_chain.hpp>
#include <terrace/copy/nvme_to_dram.hpp>
#include <terrace/core/block.hpp>
#include <terrace/core/units.hpp>
#include <terrace/evict/lru.hpp>
#include <terrace/tier/dram.hpp>
#include <terrace/tier/nvme.hpp>

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace {

using namespace terrace;
using chain = tier_chain<level<dram, evict::lru>, home<nvme>>;

/// Where experts begin: off the boundaries of direct I/O, as in most files.
constexpr std::size_t header_bytes = 1000;

block_id block_number(std::uint64_t number) {
  return expert_block(layer_id{0}, expert_id{static_cast<std::uint32_t>(number)});
}

bench::rate measure(bench::rate_settings const& wanted) {
  nvme drive{{wanted.path}};
  std::uint64_t const bytes = drive.file_bytes(file_id{0});
  std::uint64_t const count =
      bytes < header_bytes ? 0 : (bytes - header_bytes) / wanted.block_bytes;
  bench::block_order order{count, 2 * wanted.depth, wanted.random};
  std::vector<block_info> blocks;
  std::uint64_t largest = 0;
  for (std::uint64_t i = 0; i < count; ++i) {
    extent const from{file_id{0}, header_bytes + i * wanted.block_bytes, wanted.block_bytes};
    std::uint64_t const phase = from.offset % dram::traits.granularity;
    auto& block = blocks.emplace_back();
    block.id = block_number(i);
    block.bytes = phase + from.bytes;
    block.extents = {{.from = from, .to_offset = phase}};
    largest = std::max(largest, round_up(block.bytes, dram::traits.granularity));
  }
  store<chain> experts{chain{{dram{wanted.depth * largest}, evict::lru{{}}}, {std::move(drive)}},
                       blocks};

  std::vector<block_id> set(wanted.depth);
  auto const fetch = [&] {
    for (auto& id : set) { id = block_number(order.next()); }
    experts.acquire(stream_ref::host(), set).wait_all();
  };
  auto const bytes_in = [&] { return experts.counters().front().bytes_in; };
  fetch();  // the kernel finds pages for the slots
  std::uint64_t const before = bytes_in();
  bench::stopwatch const watch{wanted.seconds};
  while (watch.running()) { fetch(); }
  double const seconds = watch.seconds();
  return {bytes_in() - before, seconds, experts.counters().back().mode};
}

}  // namespace

int main(int count, char** words) {
  return terrace::bench::rate_command("expert_rate", count, words, measure);
}
