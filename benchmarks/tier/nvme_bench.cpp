// SPDX-License-Identifier: Apache-2.0
// How fast a model file arrives in memory, per engine, in place and bounced.
#include "tier/temporary_file.hpp"

#include <terrace/core/units.hpp>
#include <terrace/shim/anonymous_memory.hpp>
#include <terrace/tier/nvme.hpp>

#include <benchmark/benchmark.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace {

using namespace terrace;

constexpr std::size_t file_bytes = 512 * mib;

/// One file for all rows; reads are checked nowhere here, the tests do that.
test::temporary_file const& model_file() {
  static test::temporary_file const file;
  static bool const written = [] {
    file.write(test::distinct_bytes(file_bytes));
    return true;
  }();
  static_cast<void>(written);
  return file;
}

/// `shift` moves the destinations: 0 reads in place, anything else goes through staging memory.
void read_file(benchmark::State& state,
               read_engine engine,
               std::size_t block_bytes,
               std::size_t shift) {
  constexpr std::size_t depth = 16;
  try {
    nvme home{{model_file().path()}, {.engine = engine, .queue_depth = depth}};
    shim::anonymous_memory const memory{block_bytes * depth + 4096};
    std::vector<file_read> work;
    std::uint64_t at = 0;
    for (auto _ : state) {
      work.clear();
      for (std::size_t i = 0; i < depth; ++i) {
        if (at + block_bytes > file_bytes) { at = 0; }
        work.push_back({{file_id{0}, at, block_bytes}, memory.data() + i * block_bytes + shift});
        at += block_bytes;
      }
      home.read(work).wait();
    }
    state.SetBytesProcessed(static_cast<std::int64_t>(block_bytes * depth) * state.iterations());
    state.SetLabel(home.mode());
  } catch (not_supported const& why) { state.SkipWithError(why.what()); }
}

bool const registered = [] {
  auto const add =
      [](std::string const& title, read_engine engine, std::size_t block_bytes, std::size_t shift) {
        benchmark::RegisterBenchmark(
            ("tier/read/nvme/" + title).c_str(),
            [=](auto& state) { read_file(state, engine, block_bytes, shift); })
            ->UseRealTime()
            ->Unit(benchmark::kMillisecond);
      };
  add("uring_direct/block:1MiB", read_engine::uring_direct, mib, 0);
  add("uring_direct_bounced/block:1MiB", read_engine::uring_direct, mib, 32);
  add("uring_direct/block:4KiB", read_engine::uring_direct, 4 * kib, 0);
  add("uring_buffered/block:1MiB", read_engine::uring_buffered, mib, 0);
  add("pread_direct/block:1MiB", read_engine::pread_direct, mib, 0);
  add("pread_buffered/block:1MiB", read_engine::pread_buffered, mib, 0);
  return true;
}();

}  // namespace
