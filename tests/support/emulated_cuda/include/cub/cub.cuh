// SPDX-License-Identifier: Apache-2.0
#pragma once

// The few collectives of CUB that terrace uses, with CUB's signatures. Sums are taken in the order
// of the threads, so floating-point results may differ from the device's in the last bits.

#include <cuda_runtime.h>

#include <emulated_cuda/control.hpp>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <source_location>
#include <type_traits>
#include <vector>

namespace cub {

enum BlockReduceAlgorithm {
  BLOCK_REDUCE_RAKING_COMMUTATIVE_ONLY,
  BLOCK_REDUCE_RAKING,
  BLOCK_REDUCE_WARP_REDUCTIONS
};
enum BlockScanAlgorithm { BLOCK_SCAN_RAKING, BLOCK_SCAN_RAKING_MEMOIZE, BLOCK_SCAN_WARP_SCANS };

namespace emulated {
inline unsigned thread_rank() {
  return (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
}
/// Items of all threads of a group, and what the scan made of them.
template <class T, int Threads>
struct storage {
  T items[static_cast<std::size_t>(Threads)];
  T total;
};
}  // namespace emulated

template <class T,
          int BlockDimX,
          BlockReduceAlgorithm = BLOCK_REDUCE_WARP_REDUCTIONS,
          int BlockDimY = 1,
          int BlockDimZ = 1>
class BlockReduce {
  static constexpr int threads = BlockDimX * BlockDimY * BlockDimZ;

 public:
  using TempStorage = emulated::storage<T, threads>;
  explicit BlockReduce(TempStorage& storage) : storage_{storage} {}

  /// Only thread 0 gets the result.
  template <class Operation>
  T Reduce(T input,
           Operation combine,
           int valid,
           std::source_location where = std::source_location::current()) {
    unsigned const rank = emulated::thread_rank();
    storage_.items[rank] = input;
    emulated_cuda::barrier(where);
    T result = input;
    if (rank == 0) {
      for (int i = 1; i < valid; ++i) { result = combine(result, storage_.items[i]); }
    }
    emulated_cuda::barrier(where);
    return result;
  }
  template <class Operation>
    requires(!std::is_arithmetic_v<Operation>)
  T Reduce(T input,
           Operation combine,
           std::source_location where = std::source_location::current()) {
    return Reduce(input, combine, threads, where);
  }
  T Sum(T input, std::source_location where = std::source_location::current()) {
    return Reduce(
        input, [](T a, T b) { return static_cast<T>(a + b); }, threads, where);
  }
  T Sum(T input, int valid, std::source_location where = std::source_location::current()) {
    return Reduce(
        input, [](T a, T b) { return static_cast<T>(a + b); }, valid, where);
  }

 private:
  TempStorage& storage_;
};

template <class T,
          int BlockDimX,
          BlockScanAlgorithm = BLOCK_SCAN_RAKING,
          int BlockDimY = 1,
          int BlockDimZ = 1>
class BlockScan {
  static constexpr int threads = BlockDimX * BlockDimY * BlockDimZ;

 public:
  using TempStorage = emulated::storage<T, threads>;
  explicit BlockScan(TempStorage& storage) : storage_{storage} {}

  void ExclusiveSum(T input,
                    T& output,
                    std::source_location where = std::source_location::current()) {
    T total;
    scan(input, output, total, where, false);
  }
  void ExclusiveSum(T input,
                    T& output,
                    T& total,
                    std::source_location where = std::source_location::current()) {
    scan(input, output, total, where, false);
  }
  void InclusiveSum(T input,
                    T& output,
                    std::source_location where = std::source_location::current()) {
    T total;
    scan(input, output, total, where, true);
  }
  void InclusiveSum(T input,
                    T& output,
                    T& total,
                    std::source_location where = std::source_location::current()) {
    scan(input, output, total, where, true);
  }

 private:
  void scan(T input, T& output, T& total, std::source_location const& where, bool inclusive) {
    unsigned const rank = emulated::thread_rank();
    storage_.items[rank] = input;
    emulated_cuda::barrier(where);
    if (rank == 0) {
      T sum{};
      for (T& item : storage_.items) {
        T const own = item;
        item = inclusive ? static_cast<T>(sum + own) : sum;
        sum = static_cast<T>(sum + own);
      }
      storage_.total = sum;
    }
    emulated_cuda::barrier(where);
    output = storage_.items[rank];
    total = storage_.total;
    emulated_cuda::barrier(where);
  }
  TempStorage& storage_;
};

template <class T, int Lanes = 32>
class WarpReduce {
 public:
  struct TempStorage {
    T unused;
  };
  explicit WarpReduce(TempStorage&) {}

  /// Only the first lane of each group gets the result.
  template <class Operation>
  T Reduce(T input,
           Operation combine,
           std::source_location where = std::source_location::current()) {
    auto const view =
        emulated_cuda::exchange("cub::WarpReduce", 0xffffffffU, &input, sizeof input, where);
    T result = input;
    if (view.lane % Lanes == 0) {
      for (unsigned lane = view.lane + 1;
           lane < view.lane + Lanes && (view.present >> lane & 1U) != 0;
           ++lane) {
        result = combine(result, emulated_cuda::read_slot<T>(view, lane, where));
      }
    }
    return result;
  }
  T Sum(T input, std::source_location where = std::source_location::current()) {
    return Reduce(
        input, [](T a, T b) { return static_cast<T>(a + b); }, where);
  }
};

namespace emulated {
/// CUB's two-step protocol: a null workspace asks for its size.
inline bool only_asks(void* workspace, std::size_t& bytes) {
  if (workspace == nullptr) { bytes = 256; }
  return workspace == nullptr;
}
template <class Key>
std::uint64_t sortable_bits(Key key) {
  using bits_type = std::conditional_t<sizeof(Key) == 8, std::uint64_t, std::uint32_t>;
  if constexpr (std::is_floating_point_v<Key>) {
    auto const bits = std::bit_cast<bits_type>(key == Key{0} ? Key{0} : key);
    bits_type const sign = bits_type{1} << (8 * sizeof(Key) - 1);
    return (bits & sign) != 0 ? static_cast<bits_type>(~bits) : static_cast<bits_type>(bits | sign);
  } else if constexpr (std::is_signed_v<Key>) {
    using unsigned_key = std::make_unsigned_t<Key>;
    return static_cast<unsigned_key>(static_cast<unsigned_key>(key) ^
                                     (unsigned_key{1} << (8 * sizeof(Key) - 1)));
  } else {
    return key;
  }
}
template <class Key, class Value>
void sort(Key const* keys,
          Key* sorted_keys,
          Value const* values,
          Value* sorted_values,
          std::size_t n,
          int begin,
          int end,
          bool down) {
  auto digits = [=](std::size_t i) {
    int const width = end - begin;
    std::uint64_t const shifted = sortable_bits(keys[i]) >> begin;
    return width >= 64 ? shifted : shifted & ((std::uint64_t{1} << width) - 1);
  };
  std::vector<std::size_t> order(n);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return down ? digits(a) > digits(b) : digits(a) < digits(b);
  });
  for (std::size_t i = 0; i < n; ++i) {
    sorted_keys[i] = keys[order[i]];
    sorted_values[i] = values[order[i]];
  }
}
}  // namespace emulated

struct DeviceScan {
  template <class Input, class Output, class Count>
  static cudaError_t ExclusiveSum(void* workspace,
                                  std::size_t& bytes,
                                  Input in,
                                  Output out,
                                  Count n,
                                  cudaStream_t on = nullptr) {
    if (emulated::only_asks(workspace, bytes)) { return cudaSuccess; }
    emulated_cuda::enqueue(on, [=] {
      std::remove_cvref_t<decltype(*out)> sum{};
      for (Count i = 0; i < n; ++i) {
        auto const own = in[i];
        out[i] = sum;
        sum = static_cast<decltype(sum)>(sum + own);
      }
    });
    return cudaPeekAtLastError();
  }
};

struct DeviceRadixSort {
  template <class Key, class Value, class Count>
  static cudaError_t SortPairs(void* workspace,
                               std::size_t& bytes,
                               Key const* keys,
                               Key* sorted_keys,
                               Value const* values,
                               Value* sorted_values,
                               Count n,
                               int begin_bit = 0,
                               int end_bit = static_cast<int>(8 * sizeof(Key)),
                               cudaStream_t on = nullptr) {
    if (emulated::only_asks(workspace, bytes)) { return cudaSuccess; }
    emulated_cuda::enqueue(on, [=] {
      emulated::sort(keys,
                     sorted_keys,
                     values,
                     sorted_values,
                     static_cast<std::size_t>(n),
                     begin_bit,
                     end_bit,
                     false);
    });
    return cudaPeekAtLastError();
  }
  template <class Key, class Value, class Count>
  static cudaError_t SortPairsDescending(void* workspace,
                                         std::size_t& bytes,
                                         Key const* keys,
                                         Key* sorted_keys,
                                         Value const* values,
                                         Value* sorted_values,
                                         Count n,
                                         int begin_bit = 0,
                                         int end_bit = static_cast<int>(8 * sizeof(Key)),
                                         cudaStream_t on = nullptr) {
    if (emulated::only_asks(workspace, bytes)) { return cudaSuccess; }
    emulated_cuda::enqueue(on, [=] {
      emulated::sort(keys,
                     sorted_keys,
                     values,
                     sorted_values,
                     static_cast<std::size_t>(n),
                     begin_bit,
                     end_bit,
                     true);
    });
    return cudaPeekAtLastError();
  }
};

}  // namespace cub
