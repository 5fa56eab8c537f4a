// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/quant_type.hpp>
#include <terrace/kernel/cuda/detail/small_floats.cuh>
#include <terrace/kernel/cuda/detail/unaligned.cuh>

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

namespace terrace::kernel::cuda::detail {

/// How a number of one of the types without blocks becomes float32; `value` takes its little-endian
/// bits.
template <quant_type Type>
struct plain_value;

template <>
struct plain_value<quant_type::f32> {
  using bits = std::uint32_t;
  __device__ __forceinline__ static float value(bits x) { return __uint_as_float(x); }
};
template <>
struct plain_value<quant_type::f16> {
  using bits = std::uint16_t;
  __device__ __forceinline__ static float value(bits x) { return half_value(x); }
};
template <>
struct plain_value<quant_type::bf16> {
  using bits = std::uint16_t;
  __device__ __forceinline__ static float value(bits x) { return bf16_value(x); }
};
template <>
struct plain_value<quant_type::fp8_e4m3> {
  using bits = std::uint8_t;
  __device__ __forceinline__ static float value(bits x) { return e4m3_value(x); }
};
template <>
struct plain_value<quant_type::f64> {
  using bits = std::uint64_t;
  __device__ __forceinline__ static float value(bits x) {
    return static_cast<float>(__longlong_as_double(static_cast<long long>(x)));
  }
};
template <>
struct plain_value<quant_type::i8> {
  using bits = std::uint8_t;
  __device__ __forceinline__ static float value(bits x) {
    return static_cast<float>(static_cast<std::int8_t>(x));
  }
};
template <>
struct plain_value<quant_type::i16> {
  using bits = std::uint16_t;
  __device__ __forceinline__ static float value(bits x) {
    return static_cast<float>(static_cast<std::int16_t>(x));
  }
};
template <>
struct plain_value<quant_type::i32> {
  using bits = std::uint32_t;
  __device__ __forceinline__ static float value(bits x) {
    return static_cast<float>(static_cast<std::int32_t>(x));
  }
};
template <>
struct plain_value<quant_type::i64> {
  using bits = std::uint64_t;
  __device__ __forceinline__ static float value(bits x) {
    return static_cast<float>(static_cast<std::int64_t>(x));
  }
};

template <quant_type Type>
concept plain_type = requires { typename plain_value<Type>::bits; };

/// Eight numbers that begin at `at`, or the first `count` of them and zeros.
template <quant_type Type>
__device__ __forceinline__ void load_plain(std::byte const* at,
                                           unsigned count,
                                           float (&values)[8]) {
  using bits = typename plain_value<Type>::bits;
  if (count == 8) {
    std::uint32_t words[2 * sizeof(bits)];
    load_words(at, words);
#pragma unroll
    for (unsigned i = 0; i < 8; ++i) {
      bits number;
      if constexpr (sizeof(bits) == 8) {
        number = words[2 * i] | (static_cast<bits>(words[2 * i + 1]) << 32U);
      } else {
        constexpr unsigned in_word = 4 / sizeof(bits);
        number = static_cast<bits>(words[i / in_word] >> (8 * sizeof(bits) * (i % in_word)));
      }
      values[i] = plain_value<Type>::value(number);
    }
    return;
  }
#pragma unroll
  for (unsigned i = 0; i < 8; ++i) {
    bits number = 0;
    if (i < count) {
      for (unsigned b = 0; b < sizeof(bits); ++b) {
        auto const byte = static_cast<std::uint8_t>(at[i * sizeof(bits) + b]);
        number = static_cast<bits>(number | static_cast<bits>(byte) << (8U * b));
      }
    }
    values[i] = i < count ? plain_value<Type>::value(number) : 0.0F;
  }
}

}  // namespace terrace::kernel::cuda::detail
