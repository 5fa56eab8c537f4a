// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/stream_ref.hpp>
#include <terrace/shim/cuda.hpp>

#include <catch2/catch_test_macros.hpp>

#include <cstddef>
#include <memory>
#include <span>
#include <type_traits>
#include <vector>

namespace terrace {

/// Memory of the device, for tests.
template <class T>
class device_array {
 public:
  explicit device_array(std::size_t count) : count_{count} {
    void* at = nullptr;
    shim::check(cudaMalloc(&at, count * sizeof(T)));
    data_.reset(static_cast<T*>(at));
  }
  [[nodiscard]] T* data() const { return data_.get(); }
  [[nodiscard]] std::size_t size() const { return count_; }

 private:
  struct release {
    void operator()(T* at) const { static_cast<void>(cudaFree(at)); }
  };
  std::unique_ptr<T, release> data_;
  std::size_t count_;
};

/// Device 0 with a stream; skips the test where there is no device.
class test_device {
 public:
  test_device() {
    if (shim::device_count() == 0) { SKIP("this machine has no CUDA device"); }
    stream_ = shim::make_stream(0);
  }
  [[nodiscard]] stream_ref stream() const { return stream_ref{stream_.get()}; }

  /// Values in device memory, there when the call returns.
  template <class T>
  [[nodiscard]] device_array<T> upload(std::vector<T> const& values) const {
    device_array<T> on_device{values.size()};
    shim::copy(stream(), on_device.data(), values.data(), values.size() * sizeof(T));
    shim::synchronize(stream());
    return on_device;
  }
  /// What the array holds once the stream is done.
  template <class T>
  [[nodiscard]] std::vector<T> download(device_array<T> const& from) const {
    std::vector<T> values(from.size());
    shim::copy(stream(), values.data(), from.data(), from.size() * sizeof(T));
    shim::synchronize(stream());
    return values;
  }

 private:
  shim::unique_stream stream_;
};

}  // namespace terrace
