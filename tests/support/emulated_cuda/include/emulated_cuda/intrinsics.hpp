// SPDX-License-Identifier: Apache-2.0
#pragma once

// Device functions that need no other thread: mathematics, bits, conversions, atomics, fences.

#include <emulated_cuda/block.hpp>
#include <math.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace emulated_cuda {
inline float fast_sin(float x) { return std::sin(x); }
inline float fast_cos(float x) { return std::cos(x); }
inline float fast_exp(float x) { return std::exp(x); }
inline float fast_exp10(float x) { return std::pow(10.0F, x); }
inline float fast_log(float x) { return std::log(x); }
inline float fast_log2(float x) { return std::log2(x); }
inline float fast_log10(float x) { return std::log10(x); }
inline float fast_pow(float x, float y) { return std::pow(x, y); }
template <class T>
concept number = std::is_arithmetic_v<T>;
}  // namespace emulated_cuda

// The C library keeps functions of these names for itself.
#define __sinf(x) ::emulated_cuda::fast_sin(x)
#define __cosf(x) ::emulated_cuda::fast_cos(x)
#define __expf(x) ::emulated_cuda::fast_exp(x)
#define __exp10f(x) ::emulated_cuda::fast_exp10(x)
#define __logf(x) ::emulated_cuda::fast_log(x)
#define __log2f(x) ::emulated_cuda::fast_log2(x)
#define __log10f(x) ::emulated_cuda::fast_log10(x)
#define __powf(x, y) ::emulated_cuda::fast_pow(x, y)

template <emulated_cuda::number A, emulated_cuda::number B>
constexpr auto min(A a, B b) {
  using common = std::common_type_t<A, B>;
  return static_cast<common>(b) < static_cast<common>(a) ? static_cast<common>(b)
                                                         : static_cast<common>(a);
}
template <emulated_cuda::number A, emulated_cuda::number B>
constexpr auto max(A a, B b) {
  using common = std::common_type_t<A, B>;
  return static_cast<common>(a) < static_cast<common>(b) ? static_cast<common>(b)
                                                         : static_cast<common>(a);
}

inline float rsqrtf(float x) { return 1.0F / std::sqrt(x); }
inline double rsqrt(double x) { return 1.0 / std::sqrt(x); }
inline float __frsqrt_rn(float x) {
  return static_cast<float>(1.0 / std::sqrt(static_cast<double>(x)));
}
inline float __fsqrt_rn(float x) { return std::sqrt(x); }
inline float __frcp_rn(float x) { return 1.0F / x; }
inline float __fdividef(float a, float b) { return a / b; }
inline float fdividef(float a, float b) { return a / b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __saturatef(float x) { return std::isnan(x) ? 0.0F : std::clamp(x, 0.0F, 1.0F); }
inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
inline double __fma_rn(double a, double b, double c) { return std::fma(a, b, c); }
// Rounded on their own: a compiler must not fuse what goes through memory.
inline float __fadd_rn(float a, float b) {
  float volatile sum = a + b;
  return sum;
}
inline float __fsub_rn(float a, float b) {
  float volatile difference = a - b;
  return difference;
}
inline float __fmul_rn(float a, float b) {
  float volatile product = a * b;
  return product;
}

inline int __float2int_rn(float x) { return static_cast<int>(std::nearbyint(x)); }
inline int __float2int_rz(float x) { return static_cast<int>(x); }
inline int __float2int_rd(float x) { return static_cast<int>(std::floor(x)); }
inline int __float2int_ru(float x) { return static_cast<int>(std::ceil(x)); }
inline unsigned __float2uint_rn(float x) { return static_cast<unsigned>(std::nearbyint(x)); }
inline unsigned __float2uint_rz(float x) { return static_cast<unsigned>(x); }
inline float __int2float_rn(int x) { return static_cast<float>(x); }
inline float __uint2float_rn(unsigned x) { return static_cast<float>(x); }
inline float __ll2float_rn(long long x) { return static_cast<float>(x); }
inline double __int2double_rn(int x) { return x; }
inline float __double2float_rn(double x) { return static_cast<float>(x); }
inline float __uint_as_float(unsigned x) { return std::bit_cast<float>(x); }
inline float __int_as_float(int x) { return std::bit_cast<float>(x); }
inline unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }
inline int __float_as_int(float x) { return std::bit_cast<int>(x); }
inline double __longlong_as_double(long long x) { return std::bit_cast<double>(x); }
inline long long __double_as_longlong(double x) { return std::bit_cast<long long>(x); }

inline int __popc(unsigned x) { return std::popcount(x); }
inline int __popcll(unsigned long long x) { return std::popcount(x); }
inline int __clz(int x) { return std::countl_zero(static_cast<unsigned>(x)); }
inline int __clzll(long long x) { return std::countl_zero(static_cast<unsigned long long>(x)); }
inline int __ffs(int x) { return x == 0 ? 0 : std::countr_zero(static_cast<unsigned>(x)) + 1; }
inline int __ffsll(long long x) {
  return x == 0 ? 0 : std::countr_zero(static_cast<unsigned long long>(x)) + 1;
}
inline unsigned __brev(unsigned x) {
  unsigned reversed = 0;
  for (int bit = 0; bit < 32; ++bit) { reversed |= (x >> bit & 1U) << (31 - bit); }
  return reversed;
}
inline int __mulhi(int a, int b) { return static_cast<int>(static_cast<long long>(a) * b >> 32); }
inline unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<unsigned>(static_cast<unsigned long long>(a) * b >> 32);
}
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
  return static_cast<unsigned>(
      ((static_cast<unsigned long long>(high) << 32 | low) << (shift & 31U)) >> 32);
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
  return static_cast<unsigned>((static_cast<unsigned long long>(high) << 32 | low) >>
                               (shift & 31U));
}
inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
  unsigned long long const bytes = static_cast<unsigned long long>(y) << 32 | x;
  unsigned result = 0;
  for (unsigned i = 0; i < 4; ++i) {
    unsigned const nibble = selector >> (4 * i) & 0xFU;
    auto byte = static_cast<unsigned>(bytes >> (8 * (nibble & 7U)) & 0xFFU);
    if ((nibble & 8U) != 0) { byte = (byte & 0x80U) != 0 ? 0xFFU : 0U; }
    result |= byte << (8 * i);
  }
  return result;
}

/// c + the sum of the products of four bytes.
inline int __dp4a(int a, int b, int c) {
  auto sum = static_cast<unsigned>(c);
  for (int i = 0; i < 4; ++i) {
    auto const x = static_cast<std::int8_t>(static_cast<unsigned>(a) >> (8 * i));
    auto const y = static_cast<std::int8_t>(static_cast<unsigned>(b) >> (8 * i));
    sum += static_cast<unsigned>(x * y);
  }
  return static_cast<int>(sum);
}
inline unsigned __dp4a(unsigned a, unsigned b, unsigned c) {
  for (int i = 0; i < 4; ++i) { c += (a >> (8 * i) & 0xFFU) * (b >> (8 * i) & 0xFFU); }
  return c;
}

namespace emulated_cuda {
/// Applies `one` to each byte of two words.
template <class F>
unsigned per_byte(unsigned a, unsigned b, F one) {
  unsigned result = 0;
  for (int i = 0; i < 4; ++i) {
    auto const x = static_cast<std::uint8_t>(a >> (8 * i));
    auto const y = static_cast<std::uint8_t>(b >> (8 * i));
    result |= static_cast<unsigned>(static_cast<std::uint8_t>(one(x, y))) << (8 * i);
  }
  return result;
}
}  // namespace emulated_cuda
inline unsigned __vadd4(unsigned a, unsigned b) {
  return emulated_cuda::per_byte(a, b, [](int x, int y) { return x + y; });
}
inline unsigned __vsub4(unsigned a, unsigned b) {
  return emulated_cuda::per_byte(a, b, [](int x, int y) { return x - y; });
}
inline unsigned __vsubss4(unsigned a, unsigned b) {
  return emulated_cuda::per_byte(a, b, [](std::uint8_t x, std::uint8_t y) {
    return std::clamp(static_cast<std::int8_t>(x) - static_cast<std::int8_t>(y), -128, 127);
  });
}
inline unsigned __vcmpeq4(unsigned a, unsigned b) {
  return emulated_cuda::per_byte(a, b, [](int x, int y) { return x == y ? 0xFF : 0; });
}
inline unsigned __vcmpne4(unsigned a, unsigned b) {
  return emulated_cuda::per_byte(a, b, [](int x, int y) { return x != y ? 0xFF : 0; });
}

template <class T>
T __ldg(T const* at) {
  return *at;
}
template <class T>
T __ldcs(T const* at) {
  return *at;
}
template <class T>
T __ldcg(T const* at) {
  return *at;
}
template <class T>
T __ldca(T const* at) {
  return *at;
}
template <class T>
void __stcs(T* at, T value) {
  *at = value;
}
template <class T>
void __stcg(T* at, T value) {
  *at = value;
}

// Atomics. Streams are threads, so these are atomic between launches as well.
namespace emulated_cuda {
template <class T, class F>
T replace(T* at, F next) {
  std::atomic_ref<T> cell{*at};
  T seen = cell.load();
  while (!cell.compare_exchange_weak(seen, next(seen))) {}
  return seen;
}
template <class T>
concept atomic_number =
    std::same_as<T, int> || std::same_as<T, unsigned> || std::same_as<T, unsigned long long> ||
    std::same_as<T, float> || std::same_as<T, double>;
template <class T>
concept atomic_integer = atomic_number<T> && std::integral<T>;
}  // namespace emulated_cuda
template <emulated_cuda::atomic_number T>
T atomicAdd(T* at, std::type_identity_t<T> value) {
  return emulated_cuda::replace(at, [value](T seen) { return static_cast<T>(seen + value); });
}
template <emulated_cuda::atomic_integer T>
T atomicSub(T* at, std::type_identity_t<T> value) {
  return emulated_cuda::replace(at, [value](T seen) { return static_cast<T>(seen - value); });
}
template <emulated_cuda::atomic_integer T>
T atomicMax(T* at, std::type_identity_t<T> value) {
  return emulated_cuda::replace(at, [value](T seen) { return std::max(seen, value); });
}
template <emulated_cuda::atomic_integer T>
T atomicMin(T* at, std::type_identity_t<T> value) {
  return emulated_cuda::replace(at, [value](T seen) { return std::min(seen, value); });
}
template <emulated_cuda::atomic_integer T>
T atomicOr(T* at, std::type_identity_t<T> value) {
  return emulated_cuda::replace(at, [value](T seen) { return seen | value; });
}
template <emulated_cuda::atomic_integer T>
T atomicAnd(T* at, std::type_identity_t<T> value) {
  return emulated_cuda::replace(at, [value](T seen) { return seen & value; });
}
template <emulated_cuda::atomic_integer T>
T atomicXor(T* at, std::type_identity_t<T> value) {
  return emulated_cuda::replace(at, [value](T seen) { return seen ^ value; });
}
template <emulated_cuda::atomic_number T>
T atomicExch(T* at, std::type_identity_t<T> value) {
  return std::atomic_ref<T>{*at}.exchange(value);
}
template <emulated_cuda::atomic_integer T>
T atomicCAS(T* at, std::type_identity_t<T> expected, std::type_identity_t<T> value) {
  std::atomic_ref<T>{*at}.compare_exchange_strong(expected, value);
  return expected;
}
inline unsigned atomicInc(unsigned* at, unsigned limit) {
  return emulated_cuda::replace(at,
                                [limit](unsigned seen) { return seen >= limit ? 0U : seen + 1; });
}

inline void __threadfence_block() { std::atomic_thread_fence(std::memory_order_seq_cst); }
inline void __threadfence() { std::atomic_thread_fence(std::memory_order_seq_cst); }
inline void __threadfence_system() { std::atomic_thread_fence(std::memory_order_seq_cst); }
[[noreturn]] inline void __trap() {
  throw emulated_cuda::kernel_failure{"a kernel called __trap()"};
}
long long clock64();
