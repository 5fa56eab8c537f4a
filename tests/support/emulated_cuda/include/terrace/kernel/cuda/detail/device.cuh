// SPDX-License-Identifier: Apache-2.0
#pragma once

// The emulated counterpart of the file of this name in include/: same functions, same fragments, on
// host threads.

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <source_location>

namespace terrace::kernel::cuda::detail {

inline constexpr int device_architecture = __CUDA_ARCH__;
inline constexpr bool has_mma_k16 = true;
inline constexpr bool has_mma_k8 = true;
inline constexpr bool has_ldmatrix = true;

template <class T>
T* dynamic_shared() {
  return reinterpret_cast<T*>(emulated_cuda::dynamic_shared_memory());
}

/// What one lane holds of both factors.
template <std::size_t WordsA, std::size_t WordsB>
struct mma_factors {
  std::array<std::uint32_t, WordsA> a;
  std::array<std::uint32_t, WordsB> b;
};

template <class Coding, std::size_t WordsA, std::size_t WordsB>
void emulated_mma(char const* operation,
                  float (&sums)[4],
                  std::uint32_t const (&a)[WordsA],
                  std::uint32_t const (&b)[WordsB],
                  std::source_location const& where) {
  using factors = mma_factors<WordsA, WordsB>;
  factors mine;
  std::memcpy(mine.a.data(), a, sizeof a);
  std::memcpy(mine.b.data(), b, sizeof b);
  auto const view = emulated_cuda::exchange(operation, 0xffffffffU, &mine, sizeof mine, where);
  auto half_of = [](std::uint32_t word, unsigned high) {
    return Coding::decode(static_cast<std::uint16_t>(word >> (16 * high)));
  };
  auto of = [&](unsigned lane) { return emulated_cuda::read_slot<factors>(view, lane, where); };
  std::array<factors, 4> rows;
  unsigned const g = view.lane / 4;
  unsigned const t = view.lane % 4;
  for (unsigned q = 0; q < 4; ++q) { rows[q] = of(4 * g + q); }
  for (unsigned column = 0; column < 2; ++column) {
    std::array<factors, 4> columns;
    for (unsigned q = 0; q < 4; ++q) { columns[q] = of(4 * (2 * t + column) + q); }
    for (unsigned lower = 0; lower < 2; ++lower) {
      float& sum = sums[2 * lower + column];
      for (unsigned word = 0; word < WordsB; ++word) {
        for (unsigned q = 0; q < 4; ++q) {
          for (unsigned high = 0; high < 2; ++high) {
            sum += half_of(rows[q].a[2 * word + lower], high) * half_of(columns[q].b[word], high);
          }
        }
      }
    }
  }
}

inline void mma_m16n8k16_bf16(float (&sums)[4],
                              std::uint32_t const (&a)[4],
                              std::uint32_t const (&b)[2],
                              std::source_location where = std::source_location::current()) {
  emulated_mma<emulated_cuda::bfloat16_coding>("mma_m16n8k16_bf16", sums, a, b, where);
}
inline void mma_m16n8k16_f16(float (&sums)[4],
                             std::uint32_t const (&a)[4],
                             std::uint32_t const (&b)[2],
                             std::source_location where = std::source_location::current()) {
  emulated_mma<emulated_cuda::half_coding>("mma_m16n8k16_f16", sums, a, b, where);
}
inline void mma_m16n8k8_f16(float (&sums)[4],
                            std::uint32_t const (&a)[2],
                            std::uint32_t const (&b)[1],
                            std::source_location where = std::source_location::current()) {
  emulated_mma<emulated_cuda::half_coding>("mma_m16n8k8_f16", sums, a, b, where);
}

inline void emulated_ldmatrix(char const* operation,
                              std::uint32_t (&out)[4],
                              void const* row,
                              bool transposed,
                              std::source_location const& where) {
  if (reinterpret_cast<std::uintptr_t>(row) % 16 != 0) {
    emulated_cuda::fail("loads a matrix row that is not aligned to 16 bytes", where);
  }
  auto const view = emulated_cuda::exchange(operation, 0xffffffffU, &row, sizeof row, where);
  unsigned const g = view.lane / 4;
  unsigned const t = view.lane % 4;
  for (unsigned matrix = 0; matrix < 4; ++matrix) {
    for (unsigned i = 0; i < 2; ++i) {
      unsigned const from_row = transposed ? 2 * t + i : g;
      unsigned const column = transposed ? g : 2 * t + i;
      auto const* const values =
          emulated_cuda::read_slot<std::uint16_t const*>(view, 8 * matrix + from_row, where);
      std::uint32_t const word = static_cast<std::uint32_t>(values[column]) << (16 * i);
      out[matrix] = i == 0 ? word : out[matrix] | word;
    }
  }
  // The rows are read here, so nobody may overwrite them before every lane has its words.
  emulated_cuda::exchange("the end of ldmatrix", 0xffffffffU, nullptr, 0, where);
}
inline void ldmatrix_x4(std::uint32_t (&out)[4],
                        void const* row,
                        std::source_location where = std::source_location::current()) {
  emulated_ldmatrix("ldmatrix_x4", out, row, false, where);
}
inline void ldmatrix_x4_trans(std::uint32_t (&out)[4],
                              void const* row,
                              std::source_location where = std::source_location::current()) {
  emulated_ldmatrix("ldmatrix_x4_trans", out, row, true, where);
}

inline void cp_async_16(void* shared_to,
                        void const* from,
                        std::source_location where = std::source_location::current()) {
  emulated_cuda::start_copy(shared_to, from, 16, where);
}
inline void cp_async_4(void* shared_to,
                       void const* from,
                       std::source_location where = std::source_location::current()) {
  emulated_cuda::start_copy(shared_to, from, 4, where);
}
inline void cp_async_commit() { emulated_cuda::end_copy_group(); }
template <int Pending>
void cp_async_wait() {
  emulated_cuda::wait_for_copies(Pending);
}

inline std::uint32_t ld_acquire_sys(std::uint32_t const* at) {
  emulated_cuda::pause();
  return std::atomic_ref<std::uint32_t>{*const_cast<std::uint32_t*>(at)}.load(
      std::memory_order_acquire);
}
inline std::uint64_t ld_acquire_sys(std::uint64_t const* at) {
  emulated_cuda::pause();
  return std::atomic_ref<std::uint64_t>{*const_cast<std::uint64_t*>(at)}.load(
      std::memory_order_acquire);
}
inline void st_release_sys(std::uint32_t* at, std::uint32_t value) {
  std::atomic_ref<std::uint32_t>{*at}.store(value, std::memory_order_release);
}
inline void st_release_sys(std::uint64_t* at, std::uint64_t value) {
  std::atomic_ref<std::uint64_t>{*at}.store(value, std::memory_order_release);
}
// Kernels of a stream never overlap here.
inline void wait_for_kernels_before() {}
inline void let_next_kernel_start() {}

inline void nanosleep(std::uint32_t) { emulated_cuda::pause(); }

}  // namespace terrace::kernel::cuda::detail
