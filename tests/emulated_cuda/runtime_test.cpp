// SPDX-License-Identifier: Apache-2.0
#include <terrace/shim/cuda.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <emulated_cuda/control.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <thread>
#include <vector>

namespace terrace {
namespace {

using Catch::Matchers::ContainsSubstring;

/// A fresh machine, checked for leaks when the test ends.
struct fresh_machine {
  explicit fresh_machine(emulated_cuda::machine_facts const& facts = {}) {
    emulated_cuda::reset(facts);
  }
  fresh_machine(fresh_machine const&) = delete;
  fresh_machine& operator=(fresh_machine const&) = delete;
  ~fresh_machine() { CHECK_NOTHROW(emulated_cuda::reset()); }
};

void slowly(stream_ref on, std::function<void()> work) {
  emulated_cuda::enqueue(on.get(), [work = std::move(work)] {
    std::this_thread::sleep_for(std::chrono::milliseconds{20});
    work();
  });
}

__global__ void lonely_barrier(int* out) {
  if (threadIdx.x == 3) { return; }
  __syncthreads();
  *out = 1;
}
__global__ void two_barriers(int* out) {
  if (threadIdx.x % 2 == 0) {
    __syncthreads();
  } else {
    __syncthreads();
  }
  *out = 1;
}
__global__ void lane_that_left(int* out) {
  if (threadIdx.x == 31) { return; }
  *out = __shfl_sync(0xffffffffU, 1, 0);
}
__global__ void spin(int* out) {
  if (threadIdx.x == 0) {
    while (std::atomic_ref<int>{*out}.load() == 0) { emulated_cuda::pause(); }
  } else {
    std::atomic_ref<int>{*out}.store(7);
  }
}
__global__ void add_one(int* value) { *value += 1; }
__global__ void indices(unsigned* out) {
  unsigned const block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  unsigned const thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  __syncthreads();
  out[block * blockDim.x * blockDim.y * blockDim.z + thread] = block * 1000 + thread;
}

}  // namespace

TEST_CASE("streams run apart, and an event orders them", "[emulated]") {
  fresh_machine const machine;
  auto const first = shim::make_stream(0);
  auto const second = shim::make_stream(0);
  auto const event = shim::make_event(0);
  std::vector<int> order;
  slowly(stream_ref{first.get()}, [&] { order.push_back(1); });
  shim::record(stream_ref{first.get()}, event.get());
  CHECK(cudaEventQuery(event.get()) == cudaErrorNotReady);
  shim::wait(stream_ref{second.get()}, event.get());
  emulated_cuda::enqueue(second.get(), [&] { order.push_back(2); });
  shim::synchronize(stream_ref{second.get()});
  CHECK(order == std::vector<int>{1, 2});
  CHECK(cudaEventQuery(event.get()) == cudaSuccess);
}

TEST_CASE("a barrier that a thread never reaches is a failure with a place", "[emulated]") {
  fresh_machine const machine;
  int value = 0;
  auto const stream = shim::make_stream(0);
  stream_ref const on{stream.get()};
  SECTION("a thread ended") {
    shim::launch(lonely_barrier, {.grid = 1, .block = 8, .shared_bytes = 0}, on, &value);
    CHECK_THROWS_AS(shim::synchronize(on), device_lost);
    CHECK_THAT(emulated_cuda::failure_text(),
               ContainsSubstring("never reach") && ContainsSubstring("lonely_barrier"));
  }
  SECTION("two barriers") {
    shim::launch(two_barriers, {.grid = 1, .block = 8, .shared_bytes = 0}, on, &value);
    CHECK_THROWS_AS(shim::synchronize(on), device_lost);
    CHECK_THAT(emulated_cuda::failure_text(), ContainsSubstring("while others wait at"));
  }
  SECTION("a lane ended") {
    shim::launch(lane_that_left, {.grid = 1, .block = 32, .shared_bytes = 0}, on, &value);
    CHECK_THROWS_AS(shim::synchronize(on), device_lost);
    CHECK_THAT(emulated_cuda::failure_text(), ContainsSubstring("__shfl_sync"));
  }
  CHECK(value == 0);
  CHECK_THROWS_AS(shim::make_stream(0), device_lost);  // the failure stays
}

TEST_CASE("a polling thread lets its block go on", "[emulated]") {
  fresh_machine const machine;
  int value = 0;
  auto const stream = shim::make_stream(0);
  shim::launch(spin, {.grid = 1, .block = 64, .shared_bytes = 0}, stream_ref{stream.get()}, &value);
  shim::synchronize(stream_ref{stream.get()});
  CHECK(value == 7);
}

TEST_CASE("every thread of a three-dimensional launch runs once", "[emulated]") {
  fresh_machine const machine;
  std::vector<unsigned> out(2 * 3 * 2 * 4 * 2 * 3);
  auto const stream = shim::make_stream(0);
  shim::launch(indices,
               {.grid = {2, 3, 2}, .block = {4, 2, 3}, .shared_bytes = 0},
               stream_ref{stream.get()},
               out.data());
  shim::synchronize(stream_ref{stream.get()});
  for (unsigned i = 0; i < out.size(); ++i) { CHECK(out[i] == i / 24 * 1000 + i % 24); }
}

TEST_CASE("memory is limited, poisoned and guarded", "[emulated]") {
  emulated_cuda::machine_facts small;
  small.device_bytes = 1 << 20;
  fresh_machine const machine{small};
  void* at = nullptr;
  CHECK(cudaMalloc(&at, (1 << 20) + 1) == cudaErrorMemoryAllocation);
  CHECK(cudaGetLastError() == cudaErrorMemoryAllocation);
  REQUIRE(cudaMalloc(&at, 1 << 20) == cudaSuccess);
  CHECK(shim::query_device_memory(0).free_bytes == 0);
  float value = 0;
  REQUIRE(cudaMemcpy(&value, at, sizeof value, cudaMemcpyDeviceToHost) == cudaSuccess);
  CHECK(std::isnan(value));
  CHECK(cudaMemcpy(at, &value, (1 << 20) + 1, cudaMemcpyHostToDevice) == cudaErrorInvalidValue);
  CHECK(cudaMemcpy(&value, &value, sizeof value, cudaMemcpyDeviceToHost) == cudaErrorInvalidValue);
  CHECK(emulated_cuda::current_usage().allocations == 1);
  SECTION("freed") { CHECK(cudaFree(at) == cudaSuccess); }
  SECTION("overwritten behind its end") {
    auto* const end = static_cast<unsigned char*>(at) + (1 << 20);
    *end ^= 1U;
    CHECK(cudaFree(at) == cudaSuccess);
    CHECK_THROWS_WITH(emulated_cuda::reset(), ContainsSubstring("guard bytes"));
  }
  SECTION("forgotten") {
    CHECK_THROWS_WITH(emulated_cuda::reset(), ContainsSubstring("never freed"));
    CHECK(cudaFree(at) == cudaSuccess);
  }
}

TEST_CASE("failures come when a test wants them", "[emulated]") {
  fresh_machine const machine;
  auto const stream = shim::make_stream(0);
  stream_ref const on{stream.get()};
  void* at = nullptr;
  emulated_cuda::fail_call(emulated_cuda::call::device_allocation, 2, cudaErrorMemoryAllocation);
  REQUIRE(cudaMalloc(&at, 64) == cudaSuccess);
  void* other = nullptr;
  CHECK(cudaMalloc(&other, 64) == cudaErrorMemoryAllocation);
  std::array<char, 64> bytes{};
  emulated_cuda::fail_call(emulated_cuda::call::copy, 1, cudaErrorInvalidValue);
  CHECK_THROWS_AS(shim::copy(on, at, bytes.data(), 64), cuda_error);
  shim::copy(on, at, bytes.data(), 64);
  emulated_cuda::fail_later(emulated_cuda::call::copy, 1, cudaErrorIllegalAddress);
  shim::copy(on, at, bytes.data(), 64);
  CHECK_THROWS_AS(shim::synchronize(on), device_lost);
  CHECK(cudaDeviceReset() == cudaSuccess);
  CHECK(cudaFree(at) == cudaSuccess);
}

TEST_CASE("a captured graph replays what two streams did", "[emulated]") {
  fresh_machine const machine;
  auto const stream = shim::make_stream(0);
  auto const side = shim::make_stream(0);
  auto const forked = shim::make_event(0);
  auto const joined = shim::make_event(0);
  stream_ref const on{stream.get()};
  int value = 0;
  REQUIRE(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeGlobal) == cudaSuccess);
  shim::launch(add_one, {}, on, &value);
  shim::record(on, forked.get());
  shim::wait(stream_ref{side.get()}, forked.get());
  shim::launch(add_one, {}, stream_ref{side.get()}, &value);
  void* at = nullptr;
  CHECK(cudaMalloc(&at, 64) == cudaErrorStreamCaptureUnsupported);
  cudaGraph_t made = nullptr;
  SECTION("joined") {
    shim::record(stream_ref{side.get()}, joined.get());
    shim::wait(on, joined.get());
    REQUIRE(cudaStreamEndCapture(stream.get(), &made) == cudaSuccess);
    shim::unique_graph const graph{made};
    CHECK(value == 0);
    cudaGraphExec_t exec = nullptr;
    REQUIRE(cudaGraphInstantiate(&exec, graph.get()) == cudaSuccess);
    shim::unique_graph_exec const replay{exec};
    for (int i = 0; i < 3; ++i) {
      REQUIRE(cudaGraphLaunch(replay.get(), stream.get()) == cudaSuccess);
    }
    shim::synchronize(on);
    CHECK(value == 6);
  }
  SECTION("left open") {
    CHECK(cudaStreamEndCapture(stream.get(), &made) == cudaErrorStreamCaptureUnjoined);
    CHECK(made == nullptr);
  }
  SECTION("spoilt by a synchronisation") {
    CHECK(cudaStreamSynchronize(stream.get()) == cudaErrorStreamCaptureUnsupported);
    CHECK(cudaStreamEndCapture(stream.get(), &made) == cudaErrorStreamCaptureInvalidated);
  }
}

TEST_CASE("managed memory counts against a device once it is prefetched there", "[emulated]") {
  fresh_machine const machine;
  void* at = nullptr;
  std::size_t const bytes = std::size_t{1} << 20U;
  REQUIRE(cudaMallocManaged(&at, bytes) == cudaSuccess);
  CHECK(emulated_cuda::current_usage().device_bytes == 0);
  REQUIRE(cudaMemPrefetchAsync(at, bytes, {cudaMemLocationTypeDevice, 0}, 0, nullptr) ==
          cudaSuccess);
  CHECK(emulated_cuda::current_usage().device_bytes == bytes);
  REQUIRE(cudaMemPrefetchAsync(at, bytes, {cudaMemLocationTypeHost, 0}, 0, nullptr) == cudaSuccess);
  CHECK(emulated_cuda::current_usage().device_bytes == 0);
  CHECK(cudaFree(at) == cudaSuccess);
}

TEST_CASE("a pool reserves in units, reuses what is freed and keeps to its limit", "[emulated]") {
  fresh_machine const machine;
  auto const stream = shim::make_stream(0);
  constexpr std::size_t unit = std::size_t{2} << 20U;
  cudaMemPoolProps properties{};
  properties.allocType = cudaMemAllocationTypePinned;
  properties.location = {cudaMemLocationTypeDevice, 0};
  properties.maxSize = 2 * unit;
  cudaMemPool_t pool = nullptr;
  REQUIRE(cudaMemPoolCreate(&pool, &properties) == cudaSuccess);
  std::uint64_t keep = UINT64_MAX;
  REQUIRE(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep) == cudaSuccess);
  void* first = nullptr;
  void* second = nullptr;
  REQUIRE(cudaMallocFromPoolAsync(&first, unit + 1, pool, stream.get()) == cudaSuccess);
  CHECK(emulated_cuda::current_usage().device_bytes == 2 * unit);
  CHECK(cudaMallocFromPoolAsync(&second, unit, pool, stream.get()) == cudaErrorMemoryAllocation);
  slowly(stream_ref{stream.get()}, [] {});
  REQUIRE(cudaFreeAsync(first, stream.get()) == cudaSuccess);
  CHECK(cudaFreeAsync(first, stream.get()) == cudaErrorInvalidValue);
  REQUIRE(cudaMallocFromPoolAsync(&second, unit, pool, stream.get()) == cudaSuccess);
  REQUIRE(cudaStreamSynchronize(stream.get()) == cudaSuccess);
  CHECK(emulated_cuda::current_usage().device_bytes == 2 * unit);  // kept
  REQUIRE(cudaMemPoolTrimTo(pool, 0) == cudaSuccess);
  CHECK(emulated_cuda::current_usage().device_bytes == unit);
  CHECK(emulated_cuda::peak_device_bytes() == 2 * unit);
  SECTION("ended after its memory") {
    REQUIRE(cudaFreeAsync(second, stream.get()) == cudaSuccess);
    REQUIRE(cudaStreamSynchronize(stream.get()) == cudaSuccess);
    REQUIRE(cudaMemPoolDestroy(pool) == cudaSuccess);
  }
  SECTION("ended before its memory") {
    REQUIRE(cudaMemPoolDestroy(pool) == cudaSuccess);
    CHECK(emulated_cuda::current_usage().device_bytes == unit);
    REQUIRE(cudaFreeAsync(second, stream.get()) == cudaSuccess);
    REQUIRE(cudaStreamSynchronize(stream.get()) == cudaSuccess);
  }
  CHECK(emulated_cuda::current_usage().device_bytes == 0);
}

TEST_CASE("the shim says what a device is and which call failed", "[shim][cuda]") {
  emulated_cuda::machine_facts two;
  two.devices = 2;
  fresh_machine const machine{two};
  CHECK(shim::device_count() == 2);
  CHECK(shim::query_device(1).name == "emulated device (host threads)");
  CHECK(shim::query_device(1).compute_capability == 90);
  CHECK_THROWS_WITH(
      shim::query_device(2),
      ContainsSubstring("CUDA device 2") && ContainsSubstring("cudaErrorInvalidDevice"));
  CHECK_THROWS_AS(shim::make_stream(5), cuda_error);
  auto const stream = shim::make_stream(1);
  int now = -1;
  CHECK(cudaGetDevice(&now) == cudaSuccess);
  CHECK(now == 0);
  CHECK_THROWS_WITH(
      shim::launch(
          add_one, {.grid = 1, .block = 1025, .shared_bytes = 0}, stream_ref{stream.get()}, &now),
      ContainsSubstring("1025 threads"));
}

TEST_CASE("a host function may make no CUDA call", "[emulated]") {
  fresh_machine const machine;
  auto const stream = shim::make_stream(0);
  cudaError_t seen = cudaSuccess;
  REQUIRE(cudaLaunchHostFunc(
              stream.get(),
              [](void* data) {
                void* at = nullptr;
                *static_cast<cudaError_t*>(data) = cudaMalloc(&at, 16);
              },
              &seen) == cudaSuccess);
  shim::synchronize(stream_ref{stream.get()});
  CHECK(seen == cudaErrorNotPermitted);
}

}  // namespace terrace
