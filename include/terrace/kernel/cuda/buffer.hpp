// SPDX-License-Identifier: Apache-2.0
#pragma once

#if defined(TERRACE_HAS_CUDA)

#include <terrace/core/units.hpp>
#include <terrace/shim/cuda.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

namespace terrace::kernel::cuda {

/// What the buffers of one backend take of its device. While `measuring` they only count: a dry
/// pass tells what a real one will need.
struct memory_account {
  bool measuring = false;
  std::uint64_t bytes = 0;  ///< as the driver rounds them
  std::uint64_t peak = 0;
  std::uint64_t moves = 0;  ///< grows when any buffer gets other memory

  /// What an allocation costs: the driver cuts small ones from blocks of 2 MiB and rounds large
  /// ones up.
  [[nodiscard]] static std::uint64_t counted(std::size_t bytes) noexcept {
    return round_up(bytes, bytes < mib ? std::size_t{512} : 2 * mib);
  }
};

/// Values in the memory of the calling thread's device. Borrows the account.
template <class T>
class buffer {
 public:
  buffer() = default;
  buffer(buffer&& other) noexcept
      : account_{std::exchange(other.account_, nullptr)},
        data_{std::exchange(other.data_, nullptr)},
        capacity_{std::exchange(other.capacity_, 0)} {}
  buffer& operator=(buffer&& other) noexcept {
    if (this != &other) {
      free();
      account_ = std::exchange(other.account_, nullptr);
      data_ = std::exchange(other.data_, nullptr);
      capacity_ = std::exchange(other.capacity_, 0);
    }
    return *this;
  }
  ~buffer() { free(); }

  /// Null before the first `reserve`, and always while measuring.
  [[nodiscard]] T* data() const noexcept { return data_; }
  [[nodiscard]] std::size_t capacity() const noexcept { return capacity_; }

  /// Room for `count` values at least; what is kept of the old ones is not said. Growing waits for
  /// the device.
  /// Errors: cuda_error naming the size.
  void reserve(memory_account& account, std::size_t count) {
    if (count <= capacity_) { return; }
    free();
    account_ = &account;
    std::size_t const bytes = count * sizeof(T);
    if (!account.measuring) {
      void* at = nullptr;
      cudaError_t const code = cudaMalloc(&at, bytes);
      if (code != cudaSuccess) {
        shim::fail(code, "allocating " + format_size(bytes) + " of working memory on the device");
      }
      data_ = static_cast<T*>(at);
    }
    capacity_ = count;
    account.bytes += memory_account::counted(bytes);
    account.peak = std::max(account.peak, account.bytes);
    ++account.moves;
  }

 private:
  void free() noexcept {
    if (account_ != nullptr && capacity_ > 0) {
      account_->bytes -= memory_account::counted(capacity_ * sizeof(T));
    }
    if (data_ != nullptr) { static_cast<void>(cudaFree(data_)); }
    data_ = nullptr;
    capacity_ = 0;
  }

  memory_account* account_ = nullptr;
  T* data_ = nullptr;
  std::size_t capacity_ = 0;
};

}  // namespace terrace::kernel::cuda

#endif
