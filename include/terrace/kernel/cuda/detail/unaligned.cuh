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
  auto const past = static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(at) % 4);
  unsigned const shift = 8 * past;
  if constexpr (Count % 4 == 0) {
    if (reinterpret_cast<std::uintptr_t>(at) % sizeof(uint4) == 0) {
#pragma unroll
      for (unsigned i = 0; i < Count / 4; ++i) {
        uint4 const four = static_cast<uint4 const*>(at)[i];
        words[4 * i] = four.x, words[4 * i + 1] = four.y;
        words[4 * i + 2] = four.z, words[4 * i + 3] = four.w;
      }
      return;
    }
  }
  auto const* const from =
      reinterpret_cast<std::uint32_t const*>(static_cast<std::byte const*>(at) - past);
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

/// As load_words where the word after the last one may be read too: no branch.
template <unsigned Count>
__device__ __forceinline__ void shift_words(void const* at, std::uint32_t (&words)[Count]) {
  auto const past = static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(at) % 4);
  auto const* const from =
      reinterpret_cast<std::uint32_t const*>(static_cast<std::byte const*>(at) - past);
  std::uint32_t next = from[0];
#pragma unroll
  for (unsigned i = 0; i < Count; ++i) {
    std::uint32_t const low = next;
    next = from[i + 1];
    words[i] = __funnelshift_r(low, next, 8 * past);
  }
}
__device__ __forceinline__ std::uint32_t shift_word(void const* at) {
  std::uint32_t word[1];
  shift_words(at, word);
  return word[0];
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
