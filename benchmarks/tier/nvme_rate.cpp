// SPDX-License-Identifier: Apache-2.0
/// Reads a file for some seconds in blocks at a queue depth and prints one line: bytes, seconds and
/// the engine in use. Meant to stand beside fio with the same engine, depth, block size and order;
/// see against_fio.py.
#include <terrace/core/units.hpp>
#include <terrace/shim/anonymous_memory.hpp>
#include <terrace/tier/nvme.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <exception>
#include <random>
#include <string_view>

namespace {

using namespace terrace;

struct settings {
  char const* path;
  double seconds;
  std::size_t block_bytes = mib;
  std::size_t depth = 16;
  bool random = false;
};

/// Keeps `depth` tickets of one block each in flight.
void measure(settings const& wanted) {
  nvme home{{wanted.path}, {.queue_depth = wanted.depth, .piece_bytes = wanted.block_bytes}};
  shim::anonymous_memory const memory{wanted.block_bytes * wanted.depth};
  home.register_region(memory.bytes());
  std::uint64_t const blocks = home.file_bytes(file_id{0}) / wanted.block_bytes;
  if (blocks == 0) { throw contract_error{"the file is shorter than one block"}; }
  std::mt19937_64 random{1};
  std::uint64_t next = 0;
  std::deque<ticket> flying;
  using clock = std::chrono::steady_clock;
  auto const begin = clock::now();
  auto const end = begin + std::chrono::duration<double>{wanted.seconds};
  std::uint64_t read = 0;
  for (; clock::now() < end; ++read) {
    std::size_t const slot = read % wanted.depth;
    if (flying.size() == wanted.depth) {
      flying.front().wait();
      flying.pop_front();
    }
    std::uint64_t const block = wanted.random ? random() % blocks : next++ % blocks;
    file_read const one{{file_id{0}, block * wanted.block_bytes, wanted.block_bytes},
                        memory.data() + slot * wanted.block_bytes};
    flying.push_back(home.read({&one, 1}));
  }
  for (auto& one : flying) { one.wait(); }
  double const seconds = std::chrono::duration<double>{clock::now() - begin}.count();
  std::printf("%llu bytes %.6f seconds %s\n",
              static_cast<unsigned long long>(read * wanted.block_bytes),
              seconds,
              home.mode().c_str());
}

}  // namespace

int main(int count, char** words) {
  if (count != 6) {
    std::fprintf(stderr, "usage: nvme_rate FILE SECONDS BLOCK_BYTES DEPTH read|randread\n");
    return 2;
  }
  try {
    measure({words[1],
             std::atof(words[2]),
             std::strtoull(words[3], nullptr, 10),
             std::strtoull(words[4], nullptr, 10),
             std::string_view{words[5]} == "randread"});
  } catch (std::exception const& failure) {
    std::fprintf(stderr, "nvme_rate: %s\n", failure.what());
    return 1;
  }
}
