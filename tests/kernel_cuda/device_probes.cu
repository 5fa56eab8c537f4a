// SPDX-License-Identifier: Apache-2.0
#include <terrace/kernel/cuda/detail/device.cuh>
#include <terrace/shim/cuda.hpp>

#include <kernel_cuda/device_probes.hpp>

namespace terrace::kernel::cuda::probe {
namespace {

using namespace detail;

__device__ std::uint32_t pair(std::uint16_t low, std::uint16_t high) {
  return static_cast<std::uint32_t>(high) << 16 | low;
}
/// Fragments of a [16, 16] and b [16, 8] as device.cuh describes them.
__device__ void load_k16(std::uint16_t const* a,
                         std::uint16_t const* b,
                         std::uint32_t (&fa)[4],
                         std::uint32_t (&fb)[2]) {
  unsigned const g = threadIdx.x / 4;
  unsigned const t = threadIdx.x % 4;
  for (unsigned i = 0; i < 4; ++i) {
    std::uint16_t const* const at = a + (g + i % 2 * 8) * 16 + 2 * t + i / 2 * 8;
    fa[i] = pair(at[0], at[1]);
  }
  for (unsigned i = 0; i < 2; ++i) {
    unsigned const k = 2 * t + 8 * i;
    fb[i] = pair(b[k * 8 + g], b[(k + 1) * 8 + g]);
  }
}
__device__ void store(float const (&sums)[4], float* c) {
  unsigned const g = threadIdx.x / 4;
  unsigned const t = threadIdx.x % 4;
  for (unsigned i = 0; i < 4; ++i) { c[(g + i / 2 * 8) * 8 + 2 * t + i % 2] = sums[i]; }
}

__global__ void bf16_kernel(std::uint16_t const* a, std::uint16_t const* b, float* c) {
  std::uint32_t fa[4];
  std::uint32_t fb[2];
  load_k16(a, b, fa, fb);
  float sums[4] = {};
  mma_m16n8k16_bf16(sums, fa, fb);
  store(sums, c);
}
__global__ void f16_kernel(std::uint16_t const* a, std::uint16_t const* b, float* c) {
  std::uint32_t fa[4];
  std::uint32_t fb[2];
  load_k16(a, b, fa, fb);
  float sums[4] = {};
  mma_m16n8k16_f16(sums, fa, fb);
  store(sums, c);
}
__global__ void f16_k8_kernel(std::uint16_t const* a, std::uint16_t const* b, float* c) {
  unsigned const g = threadIdx.x / 4;
  unsigned const t = threadIdx.x % 4;
  std::uint32_t fa[2];
  for (unsigned i = 0; i < 2; ++i) {
    fa[i] = pair(a[(g + 8 * i) * 8 + 2 * t], a[(g + 8 * i) * 8 + 2 * t + 1]);
  }
  std::uint32_t const fb[1] = {pair(b[2 * t * 8 + g], b[(2 * t + 1) * 8 + g])};
  float sums[4] = {};
  mma_m16n8k8_f16(sums, fa, fb);
  store(sums, c);
}
__global__ void shared_kernel(std::uint16_t const* a, std::uint16_t const* b, float* c) {
  auto* const shared_a = dynamic_shared<std::uint16_t>();  // [16, 16]
  std::uint16_t* const shared_b = shared_a + 256;          // [16, 8]
  unsigned const lane = threadIdx.x;
  cp_async_16(shared_a + 8 * lane, a + 8 * lane);
  cp_async_commit();
  if (lane < 16) { cp_async_16(shared_b + 8 * lane, b + 8 * lane); }
  cp_async_commit();
  cp_async_wait<0>();
  __syncwarp();
  std::uint32_t fa[4];
  std::uint32_t fb[4];
  // Matrices: rows 0-7 and 8-15 of the first eight columns, then of the others.
  ldmatrix_x4(fa, shared_a + lane % 16 * 16 + lane / 16 * 8);
  ldmatrix_x4_trans(fb, shared_b + lane % 16 * 8);  // lanes 16-31 load the same two matrices again
  std::uint32_t const both[2] = {fb[0], fb[1]};
  float sums[4] = {};
  mma_m16n8k16_bf16(sums, fa, both);
  store(sums, c);
}
__global__ void shuffle_kernel(std::uint32_t* out) {
  unsigned const lane = threadIdx.x;
  std::uint32_t* const mine = out + 6 * lane;
  std::uint32_t const value = 100 + lane;
  mine[0] = __shfl_xor_sync(0xffffffffU, value, 5);
  mine[1] = __shfl_down_sync(0xffffffffU, value, 3);
  mine[2] = __shfl_up_sync(0xffffffffU, value, 2);
  mine[3] = __shfl_sync(0xffffffffU, value, 7);
  mine[4] = __ballot_sync(0xffffffffU, lane % 2 == 1 ? 1 : 0);
  mine[5] = __shfl_xor_sync(0xffffffffU, value, 4, 8);
}
__global__ void sums_kernel(float const* x, float* out) {
  auto* const part = dynamic_shared<float>();
  part[threadIdx.x] = x[blockIdx.x * blockDim.x + threadIdx.x];
  __syncthreads();
  for (unsigned half = blockDim.x / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) { part[threadIdx.x] += part[threadIdx.x + half]; }
    __syncthreads();
  }
  if (threadIdx.x == 0) { out[blockIdx.x] = part[0]; }
}
__global__ void count_kernel(std::uint32_t* counter) {
  atomicAdd(counter, 1U);
  atomicMax(counter + 1, blockIdx.x * blockDim.x + threadIdx.x);
  std::uint32_t seen = counter[2];
  while (true) {  // a sum by compare and swap
    std::uint32_t const before = atomicCAS(counter + 2, seen, seen + 2);
    if (before == seen) { break; }
    seen = before;
  }
}
__global__ void answer_kernel(std::uint32_t* flag, std::uint32_t* out) {
  std::uint32_t seen = 0;
  while ((seen = ld_acquire_sys(flag)) == 0) { nanosleep(200); }
  st_release_sys(out, seen + 1);
}
__global__ void bits_kernel(std::int32_t* out) {
  out[0] = __dp4a(0x7f80ff01, 0x017f02ff, 10);
  out[1] = static_cast<std::int32_t>(__byte_perm(0x33221100U, 0x77665544U, 0x7531U));
  out[2] = __popc(0xf0f0U);
  out[3] = __clz(0x00010000);
  out[4] = __ffs(0x00010000);
}

shim::launch_shape const one_warp{.grid = 1, .block = 32, .shared_bytes = 0};

}  // namespace

void multiply_bf16(stream_ref on, std::uint16_t const* a, std::uint16_t const* b, float* c) {
  shim::launch(bf16_kernel, one_warp, on, a, b, c);
}
void multiply_f16(stream_ref on, std::uint16_t const* a, std::uint16_t const* b, float* c) {
  shim::launch(f16_kernel, one_warp, on, a, b, c);
}
void multiply_f16_k8(stream_ref on, std::uint16_t const* a, std::uint16_t const* b, float* c) {
  shim::launch(f16_k8_kernel, one_warp, on, a, b, c);
}
void multiply_through_shared(stream_ref on,
                             std::uint16_t const* a,
                             std::uint16_t const* b,
                             float* c) {
  shim::launch(
      shared_kernel, {.grid = 1, .block = 32, .shared_bytes = (256 + 128) * 2}, on, a, b, c);
}
void shuffle(stream_ref on, std::uint32_t* out) { shim::launch(shuffle_kernel, one_warp, on, out); }
void block_sums(stream_ref on, unsigned blocks, unsigned threads, float const* x, float* out) {
  shim::launch(sums_kernel,
               {.grid = blocks, .block = threads, .shared_bytes = threads * sizeof(float)},
               on,
               x,
               out);
}
void count(stream_ref on, unsigned blocks, unsigned threads, std::uint32_t* counter) {
  shim::launch(count_kernel, {.grid = blocks, .block = threads, .shared_bytes = 0}, on, counter);
}
void answer(stream_ref on, std::uint32_t* flag, std::uint32_t* out) {
  shim::launch(answer_kernel, {.grid = 1, .block = 1, .shared_bytes = 0}, on, flag, out);
}
void bits(stream_ref on, std::int32_t* out) {
  shim::launch(bits_kernel, {.grid = 1, .block = 1, .shared_bytes = 0}, on, out);
}

}  // namespace terrace::kernel::cuda::probe
