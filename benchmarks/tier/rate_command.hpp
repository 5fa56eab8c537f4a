// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/error.hpp>
#include <terrace/core/units.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <numeric>
#include <random>
#include <string>
#include <string_view>
#include <vector>

/// The command line that programs share which read a file for some seconds and print one line:
/// bytes, seconds, and how. against_fio.py sets one beside fio, or beside another of them.
namespace terrace::bench {

struct rate_settings {
  char const* path;
  double seconds;
  std::size_t block_bytes;
  std::size_t depth;  ///< blocks in flight
  bool random;
};

struct rate {
  std::uint64_t bytes;
  double seconds;
  std::string mode;
};

/// Block numbers without end: each of `blocks` once, in order or shuffled anew, then all again.
class block_order {
 public:
  /// Errors: contract_error when there are fewer than `least`.
  block_order(std::uint64_t blocks, std::size_t least, bool random) : random_{random} {
    if (blocks < least) {
      throw contract_error{"the file holds " + std::to_string(blocks) + " blocks but " +
                           std::to_string(least) + " are wanted at once; take a longer file"};
    }
    numbers_.resize(blocks);
    std::iota(numbers_.begin(), numbers_.end(), 0U);
    at_ = numbers_.size();
  }
  [[nodiscard]] std::uint64_t next() {
    if (at_ == numbers_.size()) {
      if (random_) { std::shuffle(numbers_.begin(), numbers_.end(), draw_); }
      at_ = 0;
    }
    return numbers_[at_++];
  }

 private:
  bool random_;
  std::vector<std::uint64_t> numbers_;
  std::size_t at_ = 0;
  std::mt19937_64 draw_{1};
};

/// Time since it was made, against a limit.
class stopwatch {
 public:
  explicit stopwatch(double limit_s) : limit_s_{limit_s} {}
  [[nodiscard]] double seconds() const {
    return std::chrono::duration<double>{clock::now() - start_}.count();
  }
  [[nodiscard]] bool running() const { return seconds() < limit_s_; }

 private:
  using clock = std::chrono::steady_clock;
  double limit_s_;
  clock::time_point start_ = clock::now();
};

/// A whole `main`: `measure` is called with what the words ask for and returns a `rate`.
template <class Measure>
int rate_command(char const* name, int count, char** words, Measure measure) {
  if (count != 6) {
    std::fprintf(stderr, "usage: %s FILE SECONDS BLOCK_BYTES DEPTH read|randread\n", name);
    return 2;
  }
  try {
    rate_settings const wanted{.path = words[1],
                               .seconds = std::atof(words[2]),
                               .block_bytes = std::strtoull(words[3], nullptr, 10),
                               .depth = std::strtoull(words[4], nullptr, 10),
                               .random = std::string_view{words[5]} == "randread"};
    if (wanted.block_bytes == 0 || wanted.depth == 0) {
      throw contract_error{"blocks of no bytes, or none at once, cannot be read"};
    }
    rate const read = measure(wanted);
    std::printf("%llu bytes %.6f seconds %s\n",
                static_cast<unsigned long long>(read.bytes),
                read.seconds,
                read.mode.c_str());
    return 0;
  } catch (std::exception const& failure) {
    std::fprintf(stderr, "%s: %s\n", name, failure.what());
    return 1;
  }
}

}  // namespace terrace::bench
