// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/kernel/cpu/thread_pool.hpp>

#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <thread>

/// What kernels that read weights once are held against: all threads summing as many bytes.
namespace terrace::bench {

using clock_type = std::chrono::steady_clock;

[[nodiscard]] inline double seconds_since(clock_type::time_point start) {
  return std::chrono::duration<double>(clock_type::now() - start).count();
}

[[nodiscard]] inline kernel::cpu::thread_pool& all_threads() {
  static kernel::cpu::thread_pool pool{
      static_cast<int>(std::max(1U, std::thread::hardware_concurrency()))};
  return pool;
}

/// Sum of `bytes` bytes as 64-bit words on all threads; returns the time it took.
[[nodiscard]] inline double time_plain_sum(std::byte const* data, std::size_t bytes) {
  constexpr std::size_t width = 32;
  auto const start = clock_type::now();
  all_threads().for_range(bytes / (width * 8), 1024, [&](std::size_t begin, std::size_t end) {
    std::uint64_t sum[width] = {};
    for (std::size_t line = begin; line < end; ++line) {
      std::uint64_t words[width];
      std::memcpy(words, data + line * sizeof words, sizeof words);
      for (std::size_t i = 0; i < width; ++i) { sum[i] += words[i]; }
    }
    benchmark::DoNotOptimize(sum);
  });
  return seconds_since(start);
}

}  // namespace terrace::bench
