// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "random_values.hpp"

#include <terrace/core/error.hpp>
#include <terrace/core/quant_type.hpp>
#include <terrace/quant/decode.hpp>
#include <terrace/quant/half.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace terrace::synth {

/// How random bytes become a valid block of mean zero: where its scale lies, and what else must
/// not be left to chance. Codes of most types are not symmetric about zero; a minimum of
/// `min_ratio` scales, or a scale of random sign, takes the mean away, which a long row would turn
/// into a drift of every layer.
struct block_recipe {
  enum class scale_form : std::uint8_t { f16, e8m0, scattered_f16, ue4m3 };
  quant_type type;
  std::uint32_t scale_at;  ///< offset of the scale
  scale_form form = scale_form::f16;
  bool random_sign = false;
  std::uint32_t min_at = 0;
  float min_ratio = 0;  ///< 0: the type has no minimum
  void (*tidy)(std::byte*) noexcept = nullptr;
};

namespace detail {

/// Six-bit minima equal to the scales.
inline void equal_minima(std::byte* block) noexcept {
  std::byte* const s = block + 4;
  std::memcpy(s + 4, s, 4);
  for (int i = 8; i < 12; ++i) {
    auto const low = std::to_integer<unsigned>(s[i]) & 15U;
    s[i] = static_cast<std::byte>(low * 17U);
  }
}
/// Four-bit minima equal to the scales.
inline void equal_nibbles(std::byte* block) noexcept {
  for (int i = 0; i < 16; ++i) {
    block[i] = static_cast<std::byte>((std::to_integer<unsigned>(block[i]) & 15U) * 17U);
  }
}
/// Two-bit codes 0 to 2: a ternary type has no fourth.
inline void three_codes(std::byte* block) noexcept {
  for (int i = 0; i < 64; ++i) {
    auto const b = std::to_integer<unsigned>(block[i]);
    block[i] = static_cast<std::byte>(b & ~((b >> 1U) & b & 0x55U));
  }
}

}  // namespace detail

using scale_form = block_recipe::scale_form;
inline constexpr std::array<block_recipe, 25> block_recipes{{
    {quant_type::q4_0, 0, scale_form::f16, true},
    {quant_type::q4_1, 0, scale_form::f16, false, 2, -7.5F},
    {quant_type::q5_0, 0, scale_form::f16, true},
    {quant_type::q5_1, 0, scale_form::f16, false, 2, -15.5F},
    {quant_type::q8_0, 0, scale_form::f16, true},
    {quant_type::q2_k, 80, scale_form::f16, false, 82, 1.5F, detail::equal_nibbles},
    {quant_type::q3_k, 108, scale_form::f16, true},
    {quant_type::q4_k, 0, scale_form::f16, false, 2, 7.5F, detail::equal_minima},
    {quant_type::q5_k, 0, scale_form::f16, false, 2, 15.5F, detail::equal_minima},
    {quant_type::q6_k, 208, scale_form::f16, true},
    {quant_type::iq2_xxs, 0, scale_form::f16, true},
    {quant_type::iq2_xs, 0, scale_form::f16, true},
    {quant_type::iq2_s, 0, scale_form::f16, true},
    {quant_type::iq3_xxs, 0, scale_form::f16, true},
    {quant_type::iq3_s, 0, scale_form::f16, true},
    {quant_type::iq1_s, 0, scale_form::f16, true},
    {quant_type::iq1_m, 48, scale_form::scattered_f16, true},
    {quant_type::iq4_nl, 0, scale_form::f16, true},
    {quant_type::iq4_xs, 0, scale_form::f16, true},
    {quant_type::tq1_0, 52, scale_form::f16, true},
    {quant_type::tq2_0, 64, scale_form::f16, true, 0, 0, detail::three_codes},
    {quant_type::q1_0, 0, scale_form::f16, true},
    {quant_type::q2_0, 0, scale_form::f16, true},
    {quant_type::mxfp4, 0, scale_form::e8m0},
    {quant_type::nvfp4, 0, scale_form::ue4m3},
}};

[[nodiscard]] constexpr block_recipe const* find_recipe(quant_type type) noexcept {
  for (auto const& recipe : block_recipes) {
    if (recipe.type == type) { return &recipe; }
  }
  return nullptr;
}

/// Two neighbouring codes of a scale, and how often the upper one is taken, so that the mean square
/// is that of the scale asked for however coarse its number format.
struct scale_choice {
  std::uint16_t low = 0, high = 0;
  std::uint16_t low_min = 0, high_min = 0;
  double high_share = 0;

  static double share(double wanted, double low, double high) noexcept {
    return std::clamp((wanted * wanted - low * low) / (high * high - low * low), 0.0, 1.0);
  }
  /// Errors: contract_error when a half-precision number cannot hold it.
  static scale_choice of_f16(double wanted, float min_ratio) {
    if (!(wanted >= 0 && wanted < 60'000)) {
      throw contract_error{"a scale of " + std::to_string(wanted) + " does not fit half precision"};
    }
    // A minimum is exact when the scale has six significant bits.
    auto const step = static_cast<std::uint16_t>(min_ratio == 0 ? 1 : 32);
    auto const value = [](unsigned code) {
      return static_cast<double>(quant::f16_to_f32(static_cast<std::uint16_t>(code)));
    };
    auto code = static_cast<std::uint16_t>(quant::f32_to_f16(static_cast<float>(wanted)) / step);
    code = static_cast<std::uint16_t>(code * step);
    if (value(code) > wanted) { code = static_cast<std::uint16_t>(code - step); }
    scale_choice made;
    made.low = code;
    made.high = static_cast<std::uint16_t>(code + step);
    made.high_share = share(wanted, value(made.low), value(made.high));
    auto const minimum = [&](std::uint16_t of) {
      return quant::f32_to_f16(min_ratio * quant::f16_to_f32(of));
    };
    made.low_min = minimum(made.low);
    made.high_min = minimum(made.high);
    return made;
  }
  /// `wanted` is 2^(code - bias) in between two codes.
  static scale_choice of_e8m0(double wanted, int bias) {
    int const exponent = std::clamp(static_cast<int>(std::floor(std::log2(wanted))), -120, 120);
    scale_choice made;
    made.low = static_cast<std::uint16_t>(exponent + bias);
    made.high = static_cast<std::uint16_t>(made.low + 1);
    made.high_share = share(wanted, std::exp2(exponent), std::exp2(exponent + 1));
    return made;
  }
};

/// Turns random bytes into whole blocks whose values have a given standard deviation.
class block_maker {
 public:
  /// `sigma` 0 stands for scales of one. Errors: not_supported for a type without a recipe.
  block_maker(quant_type type, double sigma) : recipe_{recipe_for(type)} {
    double const scale = sigma == 0 ? 1 : sigma / unit_rms(type);
    bytes_ = traits_of(type).block_bytes;
    if (recipe_.form == scale_form::e8m0) {
      choice_ = scale_choice::of_e8m0(scale, 128);
    } else if (recipe_.form != scale_form::ue4m3) {
      choice_ = scale_choice::of_f16(scale, recipe_.min_ratio);
    }
    threshold_ = static_cast<unsigned>(choice_.high_share * 32768);
  }
  [[nodiscard]] std::uint32_t block_bytes() const noexcept { return bytes_; }

  /// `blocks` is full of random bytes.
  void shape(std::span<std::byte> blocks) const noexcept {
    for (std::size_t at = 0; at + bytes_ <= blocks.size(); at += bytes_) {
      std::byte* const block = blocks.data() + at;
      if (recipe_.tidy != nullptr) { recipe_.tidy(block); }
      set_scale(block);
    }
  }

  /// Standard deviation of the values of blocks whose scale is one.
  [[nodiscard]] static double unit_rms(quant_type type) {
    static std::map<quant_type, double> known;  // plans are made by one thread
    auto const [slot, fresh] = known.try_emplace(type, 0.0);
    if (fresh) {
      block_maker const maker{type, 0.0};
      constexpr std::size_t count = 512;
      std::vector<std::byte> blocks(count * maker.bytes_);
      random_words{0x7E44}.fill(blocks);
      maker.shape(blocks);
      std::vector<float> values(count * traits_of(type).block_elements);
      quant::decode_blocks(type, blocks.data(), values.size(), values.data());
      double sum = 0;
      for (float const value : values) { sum += static_cast<double>(value) * value; }
      slot->second = std::sqrt(sum / static_cast<double>(values.size()));
    }
    return slot->second;
  }

 private:
  static block_recipe const& recipe_for(quant_type type) {
    auto const* found = find_recipe(type);
    if (found == nullptr) {
      throw not_supported{"no blocks of type " + std::string{name_of(type)} + " can be made up"};
    }
    return *found;
  }
  static unsigned u16_at(std::byte const* at) noexcept {
    return std::to_integer<unsigned>(at[0]) | (std::to_integer<unsigned>(at[1]) << 8U);
  }
  static void put_u16(std::byte* at, unsigned value) noexcept {
    at[0] = static_cast<std::byte>(value & 255U);
    at[1] = static_cast<std::byte>((value >> 8U) & 255U);
  }
  /// The scale for 16 random bits.
  [[nodiscard]] unsigned pick(unsigned random, bool& high) const noexcept {
    high = (random & 0x7FFFU) < threshold_;
    return (high ? choice_.high : choice_.low) | (recipe_.random_sign ? random & 0x8000U : 0U);
  }

  void set_scale(std::byte* block) const noexcept {
    std::byte* const at = block + recipe_.scale_at;
    bool high = false;
    switch (recipe_.form) {
      case scale_form::f16:
        put_u16(at, pick(u16_at(at), high));
        if (recipe_.min_ratio != 0) {
          put_u16(block + recipe_.min_at, high ? choice_.high_min : choice_.low_min);
        }
        return;
      case scale_form::e8m0: {
        bool const upper = std::to_integer<unsigned>(*at) * 128U < threshold_;
        *at = static_cast<std::byte>(upper ? choice_.high : choice_.low);
        return;
      }
      case scale_form::scattered_f16: {  // a nibble in each of four words
        unsigned random = 0;
        for (unsigned i = 0; i < 4; ++i) { random |= (u16_at(at + 2 * i) >> 12U) << (4 * i); }
        unsigned const code = pick(random, high);
        for (unsigned i = 0; i < 4; ++i) {
          put_u16(at + 2 * i, (u16_at(at + 2 * i) & 0xFFFU) | (((code >> (4 * i)) & 15U) << 12U));
        }
        return;
      }
      case scale_form::ue4m3:  // 1 to 1.875; the size is in a multiplier of the tensor's own
        for (int i = 0; i < 4; ++i) {
          at[i] = static_cast<std::byte>(0x38U | (std::to_integer<unsigned>(at[i]) & 7U));
        }
        return;
    }
  }

  block_recipe recipe_;
  scale_choice choice_;
  unsigned threshold_ = 0;
  std::uint32_t bytes_ = 0;
};

}  // namespace terrace::synth
