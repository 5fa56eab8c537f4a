// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>

namespace emulated_cuda {

/// A 16-bit float. float32 holds sums, products and quotients of two exactly enough to round once.
template <class Coding>
struct small_float {
  std::uint16_t bits;

  small_float() = default;
  small_float(float x) : bits{Coding::encode(x)} {}  // NOLINT(google-explicit-constructor)
  explicit small_float(double x) : bits{Coding::encode(x)} {}
  explicit small_float(int x) : bits{Coding::encode(static_cast<double>(x))} {}
  [[nodiscard]] static small_float from_bits(std::uint16_t bits) {
    small_float made;
    made.bits = bits;
    return made;
  }
  [[nodiscard]] float value() const { return Coding::decode(bits); }
  operator float() const { return value(); }  // NOLINT(google-explicit-constructor)

  friend small_float operator+(small_float a, small_float b) { return {a.value() + b.value()}; }
  friend small_float operator-(small_float a, small_float b) { return {a.value() - b.value()}; }
  friend small_float operator*(small_float a, small_float b) { return {a.value() * b.value()}; }
  friend small_float operator/(small_float a, small_float b) { return {a.value() / b.value()}; }
  friend small_float operator-(small_float a) {
    return from_bits(static_cast<std::uint16_t>(a.bits ^ 0x8000U));
  }
  small_float& operator+=(small_float b) { return *this = *this + b; }
  small_float& operator*=(small_float b) { return *this = *this * b; }
};

template <class T>
struct alignas(4) small_float_pair {
  T x, y;
};

}  // namespace emulated_cuda

// One set of names for both formats, as in the toolkit.
template <class C>
using emulated_small = emulated_cuda::small_float<C>;
template <class C>
using emulated_pair = emulated_cuda::small_float_pair<emulated_cuda::small_float<C>>;

template <class C>
emulated_small<C> __hadd(emulated_small<C> a, emulated_small<C> b) {
  return a + b;
}
template <class C>
emulated_small<C> __hsub(emulated_small<C> a, emulated_small<C> b) {
  return a - b;
}
template <class C>
emulated_small<C> __hmul(emulated_small<C> a, emulated_small<C> b) {
  return a * b;
}
template <class C>
emulated_small<C> __hmax(emulated_small<C> a, emulated_small<C> b) {
  return {std::fmax(a.value(), b.value())};
}
template <class C>
emulated_small<C> __hmin(emulated_small<C> a, emulated_small<C> b) {
  return {std::fmin(a.value(), b.value())};
}
template <class C>
emulated_small<C> __hfma(emulated_small<C> a, emulated_small<C> b, emulated_small<C> c) {
  return emulated_small<C>{static_cast<double>(a.value()) * b.value() + c.value()};
}
template <class C>
emulated_pair<C> __hadd2(emulated_pair<C> a, emulated_pair<C> b) {
  return {a.x + b.x, a.y + b.y};
}
template <class C>
emulated_pair<C> __hsub2(emulated_pair<C> a, emulated_pair<C> b) {
  return {a.x - b.x, a.y - b.y};
}
template <class C>
emulated_pair<C> __hmul2(emulated_pair<C> a, emulated_pair<C> b) {
  return {a.x * b.x, a.y * b.y};
}
template <class C>
emulated_pair<C> __hfma2(emulated_pair<C> a, emulated_pair<C> b, emulated_pair<C> c) {
  return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)};
}
