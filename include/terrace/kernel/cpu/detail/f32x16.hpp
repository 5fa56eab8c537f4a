// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/kernel/cpu/detail/intrinsics.hpp>
#include <terrace/quant/half.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

/// Sixteen floats whose every operation is one IEEE operation a lane, in one order, on every
/// target. Kernels written with it give the same bits however they are tiled; only `fma` differs
/// between targets with and without fused multiply-add.
namespace terrace::kernel::cpu::detail {

/// a * b + c, fused where the hardware fuses. Never a plain expression: the compiler could fuse one
/// copy and not another.
[[nodiscard]] inline float multiply_add(float a, float b, float c) noexcept {
#if defined(__FMA__) || defined(__FP_FAST_FMAF)
  return __builtin_fmaf(a, b, c);
#else
  return a * b + c;
#endif
}

#if defined(__AVX512F__)

struct f32x16 {
  __m512 v;

  static f32x16 zero() noexcept { return {_mm512_setzero_ps()}; }
  static f32x16 all(float x) noexcept { return {_mm512_set1_ps(x)}; }
  static f32x16 load(void const* p) noexcept { return {_mm512_loadu_ps(p)}; }
  /// The first n (at most 16) values; the other lanes are 0 and their memory is not touched.
  static f32x16 load_first(void const* p, std::size_t n) noexcept {
    return {_mm512_maskz_loadu_ps(first(n), p)};
  }
  static f32x16 load_half(void const* p) noexcept {
    return {_mm512_cvtph_ps(_mm256_loadu_si256(static_cast<__m256i const*>(p)))};
  }
  static f32x16 load_bfloat(void const* p) noexcept {
    auto const wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(static_cast<__m256i const*>(p)));
    return {_mm512_castsi512_ps(_mm512_slli_epi32(wide, 16))};
  }
  void store(void* p) const noexcept { _mm512_storeu_ps(p, v); }
  void store_first(void* p, std::size_t n) const noexcept { _mm512_mask_storeu_ps(p, first(n), v); }
  void store_half(void* p) const noexcept {
    _mm256_storeu_si256(static_cast<__m256i*>(p),
                        _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }

  friend f32x16 operator+(f32x16 a, f32x16 b) noexcept { return {_mm512_add_ps(a.v, b.v)}; }
  friend f32x16 operator-(f32x16 a, f32x16 b) noexcept { return {_mm512_sub_ps(a.v, b.v)}; }
  friend f32x16 operator*(f32x16 a, f32x16 b) noexcept { return {_mm512_mul_ps(a.v, b.v)}; }
  friend f32x16 operator/(f32x16 a, f32x16 b) noexcept { return {_mm512_div_ps(a.v, b.v)}; }
  friend f32x16 fma(f32x16 a, f32x16 b, f32x16 c) noexcept {
    return {_mm512_fmadd_ps(a.v, b.v, c.v)};
  }
  /// Lane-wise b where a is NaN, like the scalar `a > b ? a : b`.
  friend f32x16 max(f32x16 a, f32x16 b) noexcept { return {_mm512_max_ps(a.v, b.v)}; }
  friend f32x16 min(f32x16 a, f32x16 b) noexcept { return {_mm512_min_ps(a.v, b.v)}; }
  friend f32x16 abs(f32x16 a) noexcept { return {_mm512_abs_ps(a.v)}; }
  friend f32x16 nearest(f32x16 a) noexcept { return {_mm512_roundscale_ps(a.v, 0)}; }
  /// a * 2^n, rounded once; n holds integers within the exponent range and some beyond.
  friend f32x16 scale_by_power(f32x16 a, f32x16 n) noexcept { return {_mm512_scalef_ps(a.v, n.v)}; }

  /// Pairs lanes i and i + 8, then i + 4, i + 2, i + 1.
  [[nodiscard]] float sum() const noexcept {
    __m256 const eight =
        _mm256_add_ps(_mm512_castps512_ps256(v),
                      _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(v), 1)));
    __m128 const four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    __m128 const two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
  }

  /// The largest lane of those that are not NaN.
  [[nodiscard]] float largest() const noexcept { return _mm512_reduce_max_ps(v); }

  static __mmask16 first(std::size_t n) noexcept {
    return n >= 16 ? __mmask16{0xFFFF} : static_cast<__mmask16>((1U << n) - 1U);
  }
};

#elif defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)

struct f32x16 {
  __m256 lo, hi;

  static f32x16 zero() noexcept { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
  static f32x16 all(float x) noexcept { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
  static f32x16 load(void const* p) noexcept {
    auto const* bytes = static_cast<char const*>(p);
    return {_mm256_loadu_ps(reinterpret_cast<float const*>(bytes)),
            _mm256_loadu_ps(reinterpret_cast<float const*>(bytes + 32))};
  }
  static f32x16 load_first(void const* p, std::size_t n) noexcept {
    alignas(64) float copy[16] = {};
    std::memcpy(copy, p, (n < 16 ? n : 16) * sizeof(float));
    return load(copy);
  }
  static f32x16 load_half(void const* p) noexcept {
    auto const* halves = static_cast<__m128i const*>(p);
    return {_mm256_cvtph_ps(_mm_loadu_si128(halves)), _mm256_cvtph_ps(_mm_loadu_si128(halves + 1))};
  }
  static f32x16 load_bfloat(void const* p) noexcept {
    auto const* halves = static_cast<__m128i const*>(p);
    auto const widen = [](__m128i x) {
      return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(x), 16));
    };
    return {widen(_mm_loadu_si128(halves)), widen(_mm_loadu_si128(halves + 1))};
  }
  void store(void* p) const noexcept {
    auto* bytes = static_cast<char*>(p);
    _mm256_storeu_ps(reinterpret_cast<float*>(bytes), lo);
    _mm256_storeu_ps(reinterpret_cast<float*>(bytes + 32), hi);
  }
  void store_first(void* p, std::size_t n) const noexcept {
    alignas(64) float copy[16];
    store(copy);
    std::memcpy(p, copy, (n < 16 ? n : 16) * sizeof(float));
  }
  void store_half(void* p) const noexcept {
    auto* halves = static_cast<__m128i*>(p);
    _mm_storeu_si128(halves, _mm256_cvtps_ph(lo, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    _mm_storeu_si128(halves + 1,
                     _mm256_cvtps_ph(hi, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }

  friend f32x16 operator+(f32x16 a, f32x16 b) noexcept {
    return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)};
  }
  friend f32x16 operator-(f32x16 a, f32x16 b) noexcept {
    return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)};
  }
  friend f32x16 operator*(f32x16 a, f32x16 b) noexcept {
    return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)};
  }
  friend f32x16 operator/(f32x16 a, f32x16 b) noexcept {
    return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)};
  }
  friend f32x16 fma(f32x16 a, f32x16 b, f32x16 c) noexcept {
    return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
  }
  friend f32x16 max(f32x16 a, f32x16 b) noexcept {
    return {_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)};
  }
  friend f32x16 min(f32x16 a, f32x16 b) noexcept {
    return {_mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi)};
  }
  friend f32x16 abs(f32x16 a) noexcept {
    __m256 const sign = _mm256_set1_ps(-0.0F);
    return {_mm256_andnot_ps(sign, a.lo), _mm256_andnot_ps(sign, a.hi)};
  }
  friend f32x16 nearest(f32x16 a) noexcept {
    return {_mm256_round_ps(a.lo, 8), _mm256_round_ps(a.hi, 8)};
  }
  friend f32x16 scale_by_power(f32x16 a, f32x16 n) noexcept {
    return {scale(a.lo, n.lo), scale(a.hi, n.hi)};
  }

  [[nodiscard]] float sum() const noexcept {
    __m256 const eight = _mm256_add_ps(lo, hi);
    __m128 const four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    __m128 const two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
  }
  [[nodiscard]] float largest() const noexcept {
    alignas(64) float lanes[16];
    store(lanes);
    return *std::max_element(lanes, lanes + 16);
  }

 private:
  // Two factors, so that results below the normal range and above 2^127 come out right.
  static __m256 scale(__m256 a, __m256 n) noexcept {
    __m256i const whole = _mm256_cvtps_epi32(n);
    __m256i const first = _mm256_srai_epi32(whole, 1);
    __m256i const second = _mm256_sub_epi32(whole, first);
    auto const power = [](__m256i e) {
      return _mm256_castsi256_ps(
          _mm256_slli_epi32(_mm256_add_epi32(e, _mm256_set1_epi32(127)), 23));
    };
    return _mm256_mul_ps(_mm256_mul_ps(a, power(first)), power(second));
  }
};

#else

struct f32x16 {
  float v[16];

  static f32x16 zero() noexcept { return {}; }
  static f32x16 all(float x) noexcept {
    return each([&](int) { return x; });
  }
  static f32x16 load(void const* p) noexcept {
    f32x16 r;
    std::memcpy(r.v, p, sizeof r.v);
    return r;
  }
  static f32x16 load_first(void const* p, std::size_t n) noexcept {
    f32x16 r{};
    std::memcpy(r.v, p, (n < 16 ? n : 16) * sizeof(float));
    return r;
  }
  static f32x16 load_half(void const* p) noexcept {
    std::uint16_t bits[16];
    std::memcpy(bits, p, sizeof bits);
    return each([&](int i) { return quant::f16_to_f32(bits[i]); });
  }
  static f32x16 load_bfloat(void const* p) noexcept {
    std::uint16_t bits[16];
    std::memcpy(bits, p, sizeof bits);
    return each(
        [&](int i) { return std::bit_cast<float>(static_cast<std::uint32_t>(bits[i]) << 16U); });
  }
  void store(void* p) const noexcept { std::memcpy(p, v, sizeof v); }
  void store_first(void* p, std::size_t n) const noexcept {
    std::memcpy(p, v, (n < 16 ? n : 16) * sizeof(float));
  }
  void store_half(void* p) const noexcept {
    std::uint16_t bits[16];
    for (int i = 0; i < 16; ++i) { bits[i] = quant::f32_to_f16(v[i]); }
    std::memcpy(p, bits, sizeof bits);
  }

  friend f32x16 operator+(f32x16 const& a, f32x16 const& b) noexcept {
    return each([&](int i) { return a.v[i] + b.v[i]; });
  }
  friend f32x16 operator-(f32x16 const& a, f32x16 const& b) noexcept {
    return each([&](int i) { return a.v[i] - b.v[i]; });
  }
  friend f32x16 operator*(f32x16 const& a, f32x16 const& b) noexcept {
    return each([&](int i) { return a.v[i] * b.v[i]; });
  }
  friend f32x16 operator/(f32x16 const& a, f32x16 const& b) noexcept {
    return each([&](int i) { return a.v[i] / b.v[i]; });
  }
  friend f32x16 fma(f32x16 const& a, f32x16 const& b, f32x16 const& c) noexcept {
    return each([&](int i) { return multiply_add(a.v[i], b.v[i], c.v[i]); });
  }
  friend f32x16 max(f32x16 const& a, f32x16 const& b) noexcept {
    return each([&](int i) { return a.v[i] > b.v[i] ? a.v[i] : b.v[i]; });
  }
  friend f32x16 min(f32x16 const& a, f32x16 const& b) noexcept {
    return each([&](int i) { return a.v[i] < b.v[i] ? a.v[i] : b.v[i]; });
  }
  friend f32x16 abs(f32x16 const& a) noexcept {
    return each([&](int i) { return std::fabs(a.v[i]); });
  }
  friend f32x16 nearest(f32x16 const& a) noexcept {
    return each([&](int i) { return std::nearbyint(a.v[i]); });
  }
  friend f32x16 scale_by_power(f32x16 const& a, f32x16 const& n) noexcept {
    return each([&](int i) {
      return n.v[i] == n.v[i] ? std::ldexp(a.v[i], static_cast<int>(n.v[i])) : n.v[i];
    });
  }

  [[nodiscard]] float sum() const noexcept {
    float eight[8];
    for (int i = 0; i < 8; ++i) { eight[i] = v[i] + v[i + 8]; }
    float const a = eight[0] + eight[4];
    float const b = eight[1] + eight[5];
    float const c = eight[2] + eight[6];
    float const d = eight[3] + eight[7];
    return (a + c) + (b + d);
  }
  [[nodiscard]] float largest() const noexcept { return *std::max_element(v, v + 16); }

 private:
  template <class F>
  static f32x16 each(F&& f) noexcept {
    f32x16 r;
    for (int i = 0; i < 16; ++i) { r.v[i] = f(i); }
    return r;
  }
};

#endif

/// out[i] = v[i].sum() for a multiple of four vectors.
template <std::size_t N>
void sum_each(f32x16 const (&v)[N], float* out) noexcept {
  static_assert(N % 4 == 0);
#if defined(__AVX512F__)
  __m512i const firsts = _mm512_setr_epi32(0, 4, 8, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
  for (std::size_t i = 0; i < N; i += 4) {
    auto const halves = [](__m512 a, __m512 b) {
      return _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xEE));
    };
    __m512 const a = halves(v[i].v, v[i + 1].v);
    __m512 const b = halves(v[i + 2].v, v[i + 3].v);
    __m512 const four =
        _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xDD));
    __m512 const two = _mm512_add_ps(four, _mm512_permute_ps(four, 0x4E));
    __m512 const one = _mm512_add_ps(two, _mm512_movehdup_ps(two));
    _mm_storeu_ps(out + i, _mm512_castps512_ps128(_mm512_permutexvar_ps(firsts, one)));
  }
#else
  for (std::size_t i = 0; i < N; ++i) { out[i] = v[i].sum(); }
#endif
}

}  // namespace terrace::kernel::cpu::detail
