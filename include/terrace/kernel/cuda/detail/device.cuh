// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

/// Everything a kernel needs that is not plain CUDA C++: the only file with inline PTX. Tests
/// compile kernels against another file of this name, which does the same on host threads.
///
/// Fragments follow the PTX manual: of lane l, g = l / 4 and t = l % 4.
///   m16n8k16  a[0] (row g, k 2t..2t+1)  a[1] (row g+8, same k)  a[2] (row g, k 2t+8..)  a[3] (row
///   g+8, k 2t+8..)
///             b[0] (k 2t..2t+1, column g)  b[1] (k 2t+8.., column g)
///   m16n8k8   a[0] (row g, k 2t..)  a[1] (row g+8, same k)  b[0] (k 2t.., column g)
///   sums      [0..1] (row g, columns 2t..2t+1)  [2..3] (row g+8, same columns)
/// In a word the lower k is the lower half.
namespace terrace::kernel::cuda::detail {

#if defined(__CUDA_ARCH__)
inline constexpr int device_architecture = __CUDA_ARCH__;  ///< 900 for sm_90
#else
inline constexpr int device_architecture = 0;  ///< the host's pass of the compiler
#endif
/// Whether mma_m16n8k16_* and mma_m16n8k8_f16 work; calling them elsewhere traps.
inline constexpr bool has_mma_k16 = device_architecture >= 800;
inline constexpr bool has_mma_k8 = device_architecture >= 750;
inline constexpr bool has_ldmatrix = device_architecture >= 750;

/// The memory the launch asked for with `shared_bytes`, aligned to 128 bytes.
template <class T>
__device__ T* dynamic_shared() {
  extern __shared__ __align__(128) unsigned char terrace_dynamic_shared[];
  return reinterpret_cast<T*>(terrace_dynamic_shared);
}

/// sums += a b with bfloat16 factors, 16 x 8 x 16, by a whole warp. From sm_80.
__device__ __forceinline__ void mma_m16n8k16_bf16(float (&sums)[4],
                                                  std::uint32_t const (&a)[4],
                                                  std::uint32_t const (&b)[2]) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, "
      "{%0, %1, %2, %3};\n"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
  static_cast<void>(sums), static_cast<void>(a), static_cast<void>(b);
  __trap();
#endif
}

/// sums += a b with float16 factors, 16 x 8 x 16, by a whole warp. From sm_80.
__device__ __forceinline__ void mma_m16n8k16_f16(float (&sums)[4],
                                                 std::uint32_t const (&a)[4],
                                                 std::uint32_t const (&b)[2]) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, "
      "%9}, "
      "{%0, %1, %2, %3};\n"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
  static_cast<void>(sums), static_cast<void>(a), static_cast<void>(b);
  __trap();
#endif
}

/// sums += a b with float16 factors, 16 x 8 x 8, by a whole warp. From sm_75.
__device__ __forceinline__ void mma_m16n8k8_f16(float (&sums)[4],
                                                std::uint32_t const (&a)[2],
                                                std::uint32_t const (&b)[1]) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 750
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, "
      "%2, %3};\n"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(a[0]), "r"(a[1]), "r"(b[0]));
#else
  static_cast<void>(sums), static_cast<void>(a), static_cast<void>(b);
  __trap();
#endif
}

/// Loads four 8 x 8 matrices of 16-bit values from shared memory: lane l names row l % 8 of matrix
/// l / 8 (16 bytes, aligned to 16); out[i] of lane l is matrix i, row l / 4, columns 2 (l % 4) and
/// the next. From sm_75.
__device__ __forceinline__ void ldmatrix_x4(std::uint32_t (&out)[4], void const* row) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 750
  auto const at = static_cast<std::uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\n"
               : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
               : "r"(at)
               : "memory");
#else
  static_cast<void>(out), static_cast<void>(row);
  __trap();
#endif
}

/// As ldmatrix_x4, each matrix transposed: out[i] of lane l is matrix i, rows 2 (l % 4) and the
/// next, column l / 4.
__device__ __forceinline__ void ldmatrix_x4_trans(std::uint32_t (&out)[4], void const* row) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 750
  auto const at = static_cast<std::uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];\n"
               : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
               : "r"(at)
               : "memory");
#else
  static_cast<void>(out), static_cast<void>(row);
  __trap();
#endif
}

/// Starts copying 16 bytes (both ends aligned to 16) into shared memory; they are there after the
/// wait for their group, and a __syncthreads for other threads. Before sm_80 the copy is done at
/// once.
__device__ __forceinline__ void cp_async_16(void* shared_to, void const* from) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  auto const to = static_cast<std::uint32_t>(__cvta_generic_to_shared(shared_to));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;\n" ::"r"(to), "l"(from) : "memory");
#else
  *static_cast<uint4*>(shared_to) = *static_cast<uint4 const*>(from);
#endif
}
/// As cp_async_16 for 4 bytes, aligned to 4.
__device__ __forceinline__ void cp_async_4(void* shared_to, void const* from) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  auto const to = static_cast<std::uint32_t>(__cvta_generic_to_shared(shared_to));
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;\n" ::"r"(to), "l"(from) : "memory");
#else
  *static_cast<std::uint32_t*>(shared_to) = *static_cast<std::uint32_t const*>(from);
#endif
}
/// Ends a group of copies of this thread.
__device__ __forceinline__ void cp_async_commit() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;\n" ::: "memory");
#endif
}
/// Waits until at most the newest `Pending` groups of this thread are under way.
template <int Pending>
__device__ __forceinline__ void cp_async_wait() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;\n" ::"n"(Pending) : "memory");
#endif
}

/// Reads a word that another processor, the host or a drive writes; later reads see what was
/// written before it. A loop that polls must do so through these.
__device__ __forceinline__ std::uint32_t ld_acquire_sys(std::uint32_t const* at) {
  std::uint32_t value = 0;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];\n" : "=r"(value) : "l"(at) : "memory");
  return value;
}
__device__ __forceinline__ std::uint64_t ld_acquire_sys(std::uint64_t const* at) {
  unsigned long long value = 0;
  asm volatile("ld.acquire.sys.global.u64 %0, [%1];\n" : "=l"(value) : "l"(at) : "memory");
  return value;
}
/// Writes a word for such a reader, after everything this thread wrote before.
__device__ __forceinline__ void st_release_sys(std::uint32_t* at, std::uint32_t value) {
  asm volatile("st.release.sys.global.u32 [%0], %1;\n" ::"l"(at), "r"(value) : "memory");
}
__device__ __forceinline__ void st_release_sys(std::uint64_t* at, std::uint64_t value) {
  asm volatile("st.release.sys.global.u64 [%0], %1;\n" ::"l"(at),
               "l"(static_cast<unsigned long long>(value))
               : "memory");
}

/// Waits until the kernels before this one in its stream are done and what they wrote is visible.
/// Only a kernel that was launched to overlap them starts before; from sm_90.
__device__ __forceinline__ void wait_for_kernels_before() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;\n" ::: "memory");
#endif
}
/// Lets a kernel that was launched to overlap this one start once every block said so or ended.
__device__ __forceinline__ void let_next_kernel_start() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;\n" ::: "memory");
#endif
}

/// Suspends the thread for about `ns` nanoseconds.
__device__ __forceinline__ void nanosleep(std::uint32_t ns) {
  asm volatile("nanosleep.u32 %0;\n" ::"r"(ns));
}

}  // namespace terrace::kernel::cuda::detail
