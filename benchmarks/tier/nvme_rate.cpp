// SPDX-License-Identifier: Apache-2.0
/// What the nvme home reads by itself, `depth` tickets of one block each in flight.
#include "rate_command.hpp"

#include <terrace/shim/anonymous_memory.hpp>
#include <terrace/tier/nvme.hpp>

#include <cstddef>
#include <cstdint>
#include <deque>

namespace {

using namespace terrace;

bench::rate measure(bench::rate_settings const& wanted) {
  nvme home{{wanted.path}, {.queue_depth = wanted.depth, .piece_bytes = wanted.block_bytes}};
  shim::anonymous_memory const memory{wanted.block_bytes * wanted.depth};
  home.register_region(memory.bytes());
  bench::block_order order{home.file_bytes(file_id{0}) / wanted.block_bytes, 1, wanted.random};
  std::deque<ticket> flying;
  std::uint64_t read = 0;
  bench::stopwatch const watch{wanted.seconds};
  for (; watch.running(); ++read) {
    std::size_t const slot = read % wanted.depth;
    if (flying.size() == wanted.depth) {
      flying.front().wait();
      flying.pop_front();
    }
    file_read const one{{file_id{0}, order.next() * wanted.block_bytes, wanted.block_bytes},
                        memory.data() + slot * wanted.block_bytes};
    flying.push_back(home.read({&one, 1}));
  }
  for (auto& one : flying) { one.wait(); }
  return {read * wanted.block_bytes, watch.seconds(), home.mode()};
}

}  // namespace

int main(int count, char** words) {
  return terrace::bench::rate_command("nvme_rate", count, words, measure);
}
