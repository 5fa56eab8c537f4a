// SPDX-License-Identifier: Apache-2.0
// A model file as it is, through a chain: every block is leased once, with a cap of a quarter of
// the model.

#include <terrace/chain/store.hpp>
#include <terrace/chain/tier_chain.hpp>
#include <terrace/copy/nvme_to_dram.hpp>
#include <terrace/core/units.hpp>
#include <terrace/evict/lfu_decay.hpp>
#include <terrace/format/catalog.hpp>
#include <terrace/tier/dram.hpp>
#include <terrace/tier/nvme.hpp>

#include <cstdio>
#include <exception>

using namespace terrace;

namespace {

bool stream(char const* path) {
  auto const model = format::catalog::open(path);  // GGUF or safetensors, one file or many
  auto const cap = model.total_file_bytes() / 4;

  using chain = tier_chain<level<dram, evict::lfu_decay>, home<nvme>>;
  chain tiers{{dram{cap}, evict::lfu_decay{{}}}, {nvme{model.files()}}};
  store<chain> weights{std::move(tiers), model.blocks()};

  for (auto const& block : model.blocks()) {
    lease const held = weights.acquire(stream_ref::host(), {&block.id, 1});
    held.wait_all();  // held[0].matrix(0) is what a kernel reads, until the lease is dropped
  }

  auto const memory = weights.counters().front();
  std::printf("%s: %zu blocks of %s through %s, at most %s held, %llu evictions\n",
              model.architecture().c_str(),
              model.blocks().size(),
              format_size(memory.bytes_in).c_str(),
              format_size(cap).c_str(),
              format_size(memory.peak_bytes).c_str(),
              static_cast<unsigned long long>(memory.evictions));
  return memory.peak_bytes <= cap && memory.misses == model.blocks().size();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) { return std::fputs("usage: idiom_stream_model MODEL\n", stderr), 2; }
  try {
    return stream(argv[1]) ? 0 : 1;
  } catch (std::exception const& failure) {
    std::fprintf(stderr, "%s\n", failure.what());
    return 1;
  }
}
