// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/quant/block_format.hpp>

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

/// Little-endian numbers at any address. Files put blocks where they like, so what does not lie on
/// a word's boundary is shifted out of the words around it. No load leaves the aligned words that
/// hold the bytes asked for.
namespace terrace::kernel::cuda::detail {

/// `Count` words that begin at `at`.
template <unsigned Count>
__device__ __forceinline__ void load_words(void const* at, std::uint32_t (&words)[Count]) {
  auto const address = reinterpret_cast<std::uintptr_t>(at);
  auto const shift = static_cast<unsigned>(address % 4) * 8;
  auto const* const from = reinterpret_cast<std::uint32_t const*>(address - address % 4);
#pragma unroll
  for (unsigned i = 0; i < Count; ++i) { words[i] = from[i]; }
  if (shift != 0) {
    std::uint32_t const last = from[Count];
#pragma unroll
    for (unsigned i = 0; i < Count; ++i) {
      words[i] = __funnelshift_r(words[i], i + 1 < Count ? words[i + 1] : last, shift);
    }
  }
}

__device__ __forceinline__ std::uint32_t load_word(void const* at) {
  std::uint32_t word[1];
  load_words(at, word);
  return word[0];
}

__device__ __forceinline__ std::uint32_t load_u16(void const* at) {
  auto const* const bytes = static_cast<std::uint8_t const*>(at);
  return bytes[0] | (static_cast<std::uint32_t>(bytes[1]) << 8U);
}

__device__ __forceinline__ float half_value(std::uint32_t bits) {
  return __half2float(__ushort_as_half(static_cast<unsigned short>(bits)));
}
__device__ __forceinline__ float load_half(quant::le_f16 const& from) {
  return half_value(load_u16(&from));
}

}  // namespace terrace::kernel::cuda::detail
