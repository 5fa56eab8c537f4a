// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "block_recipes.hpp"
#include "random_values.hpp"

#include <terrace/core/quant_type.hpp>
#include <terrace/quant/half.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace terrace::synth {

/// Makes the bytes of a stored tensor, in chunks that do not depend on each other or on who makes
/// them.
class filler {
 public:
  /// Fills one chunk; `at` is its offset in the tensor.
  using chunk_maker =
      std::function<void(random_words const&, std::uint64_t at, std::span<std::byte>)>;

  filler() = default;
  /// Chunks are whole multiples of `unit` bytes, as the tensor is.
  filler(std::uint64_t unit, chunk_maker make)
      : chunk_{std::max<std::uint64_t>(1, chunk_target / unit) * unit}, make_{std::move(make)} {}

  [[nodiscard]] std::uint64_t chunk_bytes() const noexcept { return chunk_; }
  void fill(std::uint64_t key, std::uint64_t chunk, std::span<std::byte> out) const {
    make_(random_words{scramble(key + chunk)}, chunk * chunk_, out);
  }

 private:
  static constexpr std::uint64_t chunk_target = 1U << 20U;
  std::uint64_t chunk_ = chunk_target;
  chunk_maker make_;
};

namespace detail {

/// Elements drawn from equally likely codes; a random `Index` names one.
template <class Index, class Code>
[[nodiscard]] filler drawn_from(std::vector<Code> codes) {
  auto const shared = std::make_shared<std::vector<Code> const>(std::move(codes));
  return {sizeof(Code) * 8, [shared](random_words const& words, std::uint64_t, auto out) {
            std::size_t const mask = shared->size() - 1;
            constexpr std::size_t lanes = 8 / sizeof(Index);
            std::size_t const count = out.size() / sizeof(Code);
            for (std::size_t i = 0; i < count; i += lanes) {
              std::uint64_t word = words(i / lanes);
              for (std::size_t lane = 0; lane < std::min(lanes, count - i); ++lane) {
                Code const code = (*shared)[static_cast<std::size_t>(word) & mask];
                std::memcpy(out.data() + (i + lane) * sizeof(Code), &code, sizeof(Code));
                word >>= 8 * sizeof(Index);
              }
            }
          }};
}

template <class Code, class Encode>
[[nodiscard]] filler normal_numbers(double mean, double sigma, Encode encode) {
  std::vector<Code> codes;
  for (double const level : normal_levels<4096>()) {
    codes.push_back(encode(static_cast<float>(mean + sigma * level)));
  }
  return drawn_from<std::uint16_t>(std::move(codes));
}

}  // namespace detail

/// Floating-point numbers of a normal distribution.
[[nodiscard]] inline filler normal_values(quant_type type, double mean, double sigma) {
  switch (type) {
    case quant_type::f16:
      return detail::normal_numbers<std::uint16_t>(
          mean, sigma, [](float value) { return quant::f32_to_f16(value); });
    case quant_type::bf16:
      return detail::normal_numbers<std::uint16_t>(
          mean, sigma, [](float value) { return quant::f32_to_bf16(value); });
    default:
      return detail::normal_numbers<float>(mean, sigma, [](float value) { return value; });
  }
}

/// Numbers from half of `base` to one and a half of it, evenly; their mean square is
/// `uneven_mean_square` times that of `base`.
inline constexpr double uneven_mean_square = 1 + 1.0 / 12;
[[nodiscard]] inline filler uneven_scales(quant_type type, double base) {
  std::vector<float> values;
  for (int i = 0; i < 1024; ++i) {
    values.push_back(static_cast<float>(base * (0.5 + (i + 0.5) / 1024)));
  }
  if (type == quant_type::f32) { return detail::drawn_from<std::uint16_t>(std::move(values)); }
  std::vector<std::uint16_t> codes;
  for (float const value : values) { codes.push_back(quant::f32_to_bf16(value)); }
  return detail::drawn_from<std::uint16_t>(std::move(codes));
}

/// Normal FP8 codes; `rms` becomes their standard deviation.
[[nodiscard]] inline filler fp8_codes(double& rms) {
  std::vector<std::uint8_t> codes;
  double sum = 0;
  for (double const level : normal_levels<256>()) {
    double const wanted = std::abs(level) * 96;
    unsigned best = 0;
    for (unsigned code = 1; code < 0x7F; ++code) {
      auto const miss = [&](unsigned c) {
        return std::abs(quant::e4m3_to_f32(static_cast<std::uint8_t>(c)) - wanted);
      };
      if (miss(code) < miss(best)) { best = code; }
    }
    double const value = quant::e4m3_to_f32(static_cast<std::uint8_t>(best));
    sum += value * value;
    codes.push_back(static_cast<std::uint8_t>(best | (level < 0 ? 0x80U : 0U)));
  }
  rms = std::sqrt(sum / 256);
  return detail::drawn_from<std::uint8_t>(std::move(codes));
}

/// Scale bytes of packed MXFP4 for values of standard deviation `sigma`.
[[nodiscard]] inline filler e8m0_scales(double sigma) {
  // A block's codes are doubled E2M1 numbers.
  auto const choice =
      scale_choice::of_e8m0(2 * sigma / block_maker::unit_rms(quant_type::mxfp4), 127);
  std::vector<std::uint8_t> codes;
  for (int i = 0; i < 256; ++i) {
    codes.push_back(
        static_cast<std::uint8_t>((i + 0.5) / 256 < choice.high_share ? choice.high : choice.low));
  }
  return detail::drawn_from<std::uint8_t>(std::move(codes));
}

/// Random bytes as they are.
[[nodiscard]] inline filler raw_bytes(std::uint64_t unit) {
  return {unit, [](random_words const& words, std::uint64_t, auto out) { words.fill(out); }};
}

/// Nibbles -7 to 7 as q + 8; -8 would leave them a mean.
inline constexpr double int4_rms = 4.183300132670378;  // sqrt(280 / 16)
[[nodiscard]] inline filler int4_words() {
  return {16, [](random_words const& words, std::uint64_t, auto out) {
            for (std::size_t i = 0; i < out.size() / 8; ++i) {
              std::uint64_t word = words(i);
              std::uint64_t const any = word | (word >> 1U) | (word >> 2U) | (word >> 3U);
              word |= (~any & 0x1111'1111'1111'1111ULL) << 3U;
              std::memcpy(out.data() + 8 * i, &word, 8);
            }
          }};
}

/// Blocks of a GGUF type.
[[nodiscard]] inline filler random_blocks(quant_type type, double sigma) {
  block_maker const maker{type, sigma};
  return {maker.block_bytes(), [maker](random_words const& words, std::uint64_t, auto out) {
            words.fill(out);
            maker.shape(out);
          }};
}

/// These bytes.
[[nodiscard]] inline filler given_bytes(std::vector<std::byte> bytes) {
  auto const shared = std::make_shared<std::vector<std::byte> const>(std::move(bytes));
  return {1, [shared](random_words const&, std::uint64_t at, auto out) {
            std::memcpy(out.data(), shared->data() + at, out.size());
          }};
}
template <class T>
[[nodiscard]] filler given_values(std::span<T const> values) {
  auto const bytes = std::as_bytes(values);
  return given_bytes({bytes.begin(), bytes.end()});
}

}  // namespace terrace::synth
