// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

namespace terrace::synth {

/// Spreads the bits of a counter (the finaliser of SplitMix64, Steele, Lea and Flood 2014).
[[nodiscard]] constexpr std::uint64_t scramble(std::uint64_t x) noexcept {
  x ^= x >> 30U;
  x *= 0xBF58'476D'1CE4'E5B9ULL;
  x ^= x >> 27U;
  x *= 0x94D0'49BB'1331'11EBULL;
  return x ^ (x >> 31U);
}

/// Random words by number: any of them costs the same, so any thread can make any part of a file.
class random_words {
 public:
  explicit constexpr random_words(std::uint64_t key) noexcept : key_{key} {}
  [[nodiscard]] constexpr std::uint64_t operator()(std::uint64_t index) const noexcept {
    return scramble(key_ + (index + 1) * 0x9E37'79B9'7F4A'7C15ULL);
  }
  /// From 0 up to but not including 1.
  [[nodiscard]] constexpr double real(std::uint64_t index) const noexcept {
    return static_cast<double>((*this)(index) >> 11U) * 0x1.0p-53;
  }
  void fill(std::span<std::byte> out) const noexcept {
    std::size_t const whole = out.size() / 8;
    for (std::size_t i = 0; i < whole; ++i) {
      std::uint64_t const word = (*this)(i);
      std::memcpy(out.data() + 8 * i, &word, 8);
    }
    std::uint64_t const word = (*this)(whole);
    std::memcpy(out.data() + 8 * whole, &word, out.size() % 8);
  }

 private:
  std::uint64_t key_;
};

/// The key of a tensor's random words.
[[nodiscard]] constexpr std::uint64_t key_of(std::uint64_t seed, std::string_view name) noexcept {
  std::uint64_t hash = scramble(seed + 0x51ED'270B'0F1A'9C3DULL);
  for (char const letter : name) {
    hash = scramble(hash ^ static_cast<unsigned char>(letter)) + 0x2545'F491'4F6C'DD1DULL;
  }
  return hash;
}

/// The value that a standard normal one stays below with probability `p`, 0 < p < 1.
[[nodiscard]] inline double normal_quantile(double p) {
  double low = -9, high = 9;
  for (int i = 0; i < 60; ++i) {
    double const middle = (low + high) / 2;
    (0.5 * std::erfc(-middle / std::sqrt(2.0)) < p ? low : high) = middle;
  }
  return (low + high) / 2;
}

/// Equally likely values of a standard normal distribution, scaled so that their variance is one.
/// Symmetric, so that sums over them have no drift.
template <std::size_t Count>
[[nodiscard]] std::array<double, Count> const& normal_levels() {
  static std::array<double, Count> const levels = [] {
    std::array<double, Count> made{};
    double sum = 0;
    for (std::size_t i = 0; i < Count / 2; ++i) {
      made[Count - 1 - i] = normal_quantile(1 - (static_cast<double>(i) + 0.5) / Count);
      made[i] = -made[Count - 1 - i];
      sum += 2 * made[i] * made[i];
    }
    for (double& level : made) { level /= std::sqrt(sum / Count); }
    return made;
  }();
  return levels;
}

}  // namespace terrace::synth
