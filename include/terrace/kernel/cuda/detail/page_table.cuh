// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/attention_shape.hpp>

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

namespace terrace::kernel::cuda::detail {

/// kv_pages as a kernel reads them.
struct page_table {
  std::byte* const* pages;
  std::uint32_t positions;  ///< the list has pages for
  std::uint32_t page_tokens;
  std::uint32_t element_bytes;
  std::size_t k_offset, k_head_stride, k_token_stride;  // all in bytes
  std::size_t v_offset, v_head_stride, v_token_stride;

  explicit page_table(kv_pages const& cache)
      : pages{cache.pages.data()},
        positions{static_cast<std::uint32_t>(cache.pages.size() * cache.layout.page_tokens)},
        page_tokens{static_cast<std::uint32_t>(cache.layout.page_tokens)},
        element_bytes{cache.layout.half ? 2U : 4U},
        k_offset{cache.layout.k_offset * element_bytes},
        k_head_stride{cache.layout.k_head_stride * element_bytes},
        k_token_stride{cache.layout.k_token_stride * element_bytes},
        v_offset{cache.layout.v_offset * element_bytes},
        v_head_stride{cache.layout.v_head_stride * element_bytes},
        v_token_stride{cache.layout.v_token_stride * element_bytes} {}

  [[nodiscard]] __device__ std::byte* key(std::uint32_t position, std::size_t head) const {
    return pages[position / page_tokens] + k_offset + head * k_head_stride +
           position % page_tokens * k_token_stride;
  }
  [[nodiscard]] __device__ std::byte* value(std::uint32_t position, std::size_t head) const {
    return pages[position / page_tokens] + v_offset + head * v_head_stride +
           position % page_tokens * v_token_stride;
  }
};

/// Value i of a cached row.
template <bool Half>
__device__ __forceinline__ float cached(std::byte const* row, std::size_t i) {
  if constexpr (Half) {
    return __half2float(reinterpret_cast<__half const*>(row)[i]);
  } else {
    return reinterpret_cast<float const*>(row)[i];
  }
}

/// Values i to i + 3 of a cached row of n, zeros from n on. i is a multiple of 4.
template <bool Half>
__device__ __forceinline__ float4 cached_four(std::byte const* row, std::size_t i, std::size_t n) {
  constexpr std::size_t width = Half ? 8 : 16;  // bytes of four values
  if (i + 4 <= n && reinterpret_cast<std::uintptr_t>(row) % width == 0) {
    if constexpr (Half) {
      uint2 const words = *reinterpret_cast<uint2 const*>(row + 2 * i);
      auto const value = [](std::uint32_t bits) {
        return __half2float(__ushort_as_half(static_cast<unsigned short>(bits & 0xffffU)));
      };
      return {value(words.x), value(words.x >> 16U), value(words.y), value(words.y >> 16U)};
    } else {
      return *reinterpret_cast<float4 const*>(row + 4 * i);
    }
  }
  float4 values{0, 0, 0, 0};
  if (i < n) { values.x = cached<Half>(row, i); }
  if (i + 1 < n) { values.y = cached<Half>(row, i + 1); }
  if (i + 2 < n) { values.z = cached<Half>(row, i + 2); }
  if (i + 3 < n) { values.w = cached<Half>(row, i + 3); }
  return values;
}

}  // namespace terrace::kernel::cuda::detail
