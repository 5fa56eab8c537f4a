// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/shim/cuda.hpp>

#include <catch2/catch_test_macros.hpp>

#if __has_include(<emulated_cuda/control.hpp>)
#include <emulated_cuda/control.hpp>
#endif

#include <algorithm>
#include <cstddef>
#include <vector>

namespace terrace::test {

/// The machine of a test of device memory: emulated and fresh, checked for leaks when the test
/// ends; or a real one, without which the test skips.
class cuda_machine {
 public:
#if __has_include(<emulated_cuda/control.hpp>)
  explicit cuda_machine(emulated_cuda::machine_facts const& facts = {}) {
    emulated_cuda::reset(facts);
  }
  ~cuda_machine() { CHECK_NOTHROW(emulated_cuda::reset()); }
#else
  cuda_machine() {
    if (shim::device_count() == 0) { SKIP("this machine has no CUDA device"); }
  }
#endif
  cuda_machine(cuda_machine const&) = delete;
  cuda_machine& operator=(cuda_machine const&) = delete;
};

/// Writes and reads memory of device 0, or any that its copy engine reaches.
class device_access {
 public:
  void fill(std::byte* at, int value, std::size_t bytes) const {
    shim::fill(stream(), at, value, bytes);
    shim::synchronize(stream());
  }
  void write(std::byte* at, std::vector<std::byte> const& bytes) const {
    shim::copy(stream(), at, bytes.data(), bytes.size());
    shim::synchronize(stream());
  }
  [[nodiscard]] std::vector<std::byte> read(std::byte const* at, std::size_t bytes) const {
    std::vector<std::byte> copy(bytes);
    shim::copy(stream(), copy.data(), at, bytes);
    shim::synchronize(stream());
    return copy;
  }
  [[nodiscard]] bool holds(std::byte const* at, int value, std::size_t bytes) const {
    auto const copy = read(at, bytes);
    return std::all_of(
        copy.begin(), copy.end(), [&](std::byte b) { return b == std::byte(value); });
  }

 private:
  [[nodiscard]] stream_ref stream() const { return stream_ref{stream_.get()}; }
  shim::unique_stream stream_ = shim::make_stream(0);
};

}  // namespace terrace::test
