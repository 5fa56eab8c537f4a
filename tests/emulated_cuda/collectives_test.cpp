// SPDX-License-Identifier: Apache-2.0
#include <terrace/kernel/cuda/detail/device.cuh>
#include <terrace/shim/cuda.hpp>

#include <cub/cub.cuh>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <catch2/catch_test_macros.hpp>
#include <emulated_cuda/control.hpp>

#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

namespace terrace {
namespace {

__global__ void collectives(int* sums, int* scans, int* warps) {
  using reduce = cub::BlockReduce<int, 96>;
  using scan = cub::BlockScan<int, 96>;
  using warp_reduce = cub::WarpReduce<int>;
  __shared__ reduce::TempStorage reduce_memory;
  __shared__ scan::TempStorage scan_memory;
  __shared__ warp_reduce::TempStorage warp_memory[3];
  int const value = static_cast<int>(threadIdx.x) + 1;
  int const sum = reduce{reduce_memory}.Sum(value);
  if (threadIdx.x == 0) { sums[blockIdx.x] = sum; }
  int before = 0;
  scan{scan_memory}.ExclusiveSum(value, before);
  scans[blockIdx.x * 96 + threadIdx.x] = before;
  int const most = warp_reduce{warp_memory[threadIdx.x / 32]}.Reduce(
      value, [](int a, int b) { return a > b ? a : b; });
  if (threadIdx.x % 32 == 0) { warps[blockIdx.x * 3 + threadIdx.x / 32] = most; }
}

__global__ void read_too_early(float const* from, float* early, float* late) {
  auto* const shared = kernel::cuda::detail::dynamic_shared<float>();
  kernel::cuda::detail::cp_async_16(shared, from);
  kernel::cuda::detail::cp_async_commit();
  *early = shared[0];
  kernel::cuda::detail::cp_async_wait<0>();
  *late = shared[0];
}

}  // namespace

TEST_CASE("the collectives of CUB give what they promise", "[emulated]") {
  emulated_cuda::reset();
  auto const stream = shim::make_stream(0);
  stream_ref const on{stream.get()};
  std::vector<int> sums(2);
  std::vector<int> scans(2 * 96);
  std::vector<int> warps(2 * 3);
  shim::launch(collectives,
               {.grid = 2, .block = 96, .shared_bytes = 0},
               on,
               sums.data(),
               scans.data(),
               warps.data());
  shim::synchronize(on);
  CHECK(sums == std::vector<int>{96 * 97 / 2, 96 * 97 / 2});
  for (int i = 0; i < 96; ++i) {
    CHECK(scans[static_cast<std::size_t>(i) + 96] == i * (i + 1) / 2);
  }
  CHECK(warps == std::vector<int>{32, 64, 96, 32, 64, 96});
}

TEST_CASE("device-wide scans and sorts run in the order of their stream", "[emulated]") {
  emulated_cuda::reset();
  auto const stream = shim::make_stream(0);
  std::vector<unsigned> keys = {5, 3, 0x103, 1};
  std::vector<int> values = {0, 1, 2, 3};
  std::vector<unsigned> sorted(4);
  std::vector<int> moved(4);
  std::size_t bytes = 0;
  REQUIRE(cub::DeviceRadixSort::SortPairs(nullptr,
                                          bytes,
                                          keys.data(),
                                          sorted.data(),
                                          values.data(),
                                          moved.data(),
                                          4,
                                          0,
                                          8,
                                          stream.get()) == cudaSuccess);
  std::vector<char> memory(bytes);
  REQUIRE(cub::DeviceRadixSort::SortPairs(memory.data(),
                                          bytes,
                                          keys.data(),
                                          sorted.data(),
                                          values.data(),
                                          moved.data(),
                                          4,
                                          0,
                                          8,
                                          stream.get()) == cudaSuccess);
  std::vector<int> sums(4);
  REQUIRE(cub::DeviceScan::ExclusiveSum(
              memory.data(), bytes, moved.data(), sums.data(), 4, stream.get()) == cudaSuccess);
  shim::synchronize(stream_ref{stream.get()});
  CHECK(moved ==
        std::vector<int>{3, 1, 2, 0});  // only eight bits were sorted by, and the sort is stable
  CHECK(sums == std::vector<int>{0, 3, 4, 6});
}

TEST_CASE("an asynchronous copy is not there before its wait", "[emulated]") {
  emulated_cuda::reset();
  auto const stream = shim::make_stream(0);
  stream_ref const on{stream.get()};
  alignas(16) float const from[4] = {1, 2, 3, 4};
  float early = 0;
  float late = 0;
  shim::launch(
      read_too_early, {.grid = 1, .block = 1, .shared_bytes = 16}, on, from, &early, &late);
  shim::synchronize(on);
  CHECK(std::isnan(early));
  CHECK(late == 1);
}

TEST_CASE("16-bit floats round as the formats say", "[emulated]") {
  CHECK(__float2bfloat16(1.00390625F).bits == 0x3F80);  // half way: to even
  CHECK(__float2bfloat16(1.01171875F).bits == 0x3F82);
  CHECK(__bfloat162float(__ushort_as_bfloat16(0xC000)) == -2.0F);
  CHECK(__half_as_ushort(__float2half(65520.0F)) == 0x7C00);
  CHECK(__half2float(__hfma(__half{2.0F}, __half{3.0F}, __half{0.5F})) == 6.5F);
  CHECK(__low2float(__floats2half2_rn(1.5F, 2.5F)) == 1.5F);
}

}  // namespace terrace
