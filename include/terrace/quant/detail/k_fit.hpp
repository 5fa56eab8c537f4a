// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/quant/detail/fit.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

// Fits of 256 weights in groups whose own scales are whole numbers under a half-precision
// super-scale. All errors below are squared, in units of the largest weight squared.
namespace terrace::quant::detail {

/// Below this all weights are zero: a half-precision super-scale is a multiple of 2^-24.
inline constexpr float smallest_unit = 0x1.0p-30F;

/// Largest scale and minimum of a group, and largest code of a weight.
struct affine_range {
  float scale;
  float code;
};

/// Weight i of group j is d * scale[j] * code - dmin * minimum[j].
template <std::size_t Groups>
struct affine_k_fit {
  static constexpr int width = 256 / Groups;

  float d = 0;
  float dmin = 0;
  std::array<std::uint8_t, Groups> scale{};
  std::array<std::uint8_t, Groups> minimum{};
  std::array<std::uint8_t, 256> code{};

  /// Fits x [256].
  [[nodiscard]] static affine_k_fit of(float const* x, affine_range const& range) noexcept {
    affine_k_fit best;
    float const unit = std::abs(extreme_of<256>(x));
    if (unit < smallest_unit) { return best; }
    std::array<affine, Groups> wanted;
    affine largest;
    for (std::size_t j = 0; j < Groups; ++j) {
      wanted[j] = fit_affine<width>(x + width * j, range.code, false, keep);
      largest.scale = std::max(largest.scale, wanted[j].scale);
      largest.minimum = std::max(largest.minimum, wanted[j].minimum);
    }
    best.d = round_to_f16(largest.scale / range.scale);
    best.dmin = round_to_f16(largest.minimum / range.scale);
    float best_error = best.choose_scales(x, wanted, range, unit);
    for (int pass = 0; pass < 4; ++pass) {
      affine_k_fit next = best;
      next.refine(x, unit);
      float const error = next.choose_scales(x, wanted, range, unit);
      if (!(error < best_error)) { break; }
      best_error = error;
      best = next;
    }
    return best;
  }

 private:
  /// Chooses whole scales and minima near the wanted ones, then the codes; returns the error.
  [[nodiscard]] float choose_scales(float const* x,
                                    std::array<affine, Groups> const& wanted,
                                    affine_range const& range,
                                    float unit) noexcept {
    float total = 0;
    for (std::size_t j = 0; j < Groups; ++j) {
      float const s0 = d > 0 ? nearest(wanted[j].scale / d, 0, range.scale) : 0.0F;
      float const m0 = dmin > 0 ? nearest(wanted[j].minimum / dmin, 0, range.scale) : 0.0F;
      float best = std::numeric_limits<float>::max();
      for (float s = std::max(s0 - 1, 0.0F); s <= std::min(s0 + 1, range.scale); ++s) {
        for (float m = std::max(m0 - 1, 0.0F); m <= std::min(m0 + 1, range.scale); ++m) {
          float const error = error_of(x + width * j, {d * s, dmin * m}, range.code, 1 / unit);
          if (error >= best) { continue; }
          best = error;
          scale[j] = static_cast<std::uint8_t>(s);
          minimum[j] = static_cast<std::uint8_t>(m);
        }
      }
      total += best;
      for (std::size_t i = width * j; i < width * (j + 1); ++i) {
        float const stored = d * static_cast<float>(scale[j]);
        float const shifted = x[i] + dmin * static_cast<float>(minimum[j]);
        code[i] =
            static_cast<std::uint8_t>(stored > 0 ? nearest(shifted / stored, 0, range.code) : 0);
      }
    }
    return total;
  }

  [[nodiscard]] static float error_of(float const* x,
                                      affine const& stored,
                                      float levels,
                                      float inverse_unit) noexcept {
    float const inverse = stored.scale > 0 ? 1 / stored.scale : 0.0F;
    float rest[width];
    for (int i = 0; i < width; ++i) {
      float const shifted = x[i] + stored.minimum;
      rest[i] = (shifted - stored.scale * nearest(shifted * inverse, 0, levels)) * inverse_unit;
    }
    return dot<width>(rest, rest);
  }

  /// Gives d and dmin the values that suit the codes best, by least squares.
  void refine(float const* x, float unit) noexcept {
    double ss = 0;
    double sm = 0;
    double mm = 0;
    double xs = 0;
    double xm = 0;
    for (std::size_t i = 0; i < 256; ++i) {
      double const s = static_cast<double>(scale[i / width]) * code[i];
      double const m = -static_cast<double>(minimum[i / width]);
      double const value = x[i] / unit;
      ss += s * s;
      sm += s * m;
      mm += m * m;
      xs += value * s;
      xm += value * m;
    }
    double const determinant = ss * mm - sm * sm;
    if (determinant > 0) {
      d = round_to_f16(
          std::max(static_cast<float>((xs * mm - xm * sm) / determinant * unit), 0.0F));
      dmin = round_to_f16(
          std::max(static_cast<float>((xm * ss - xs * sm) / determinant * unit), 0.0F));
    } else if (ss > 0) {
      d = round_to_f16(std::max(static_cast<float>(xs / ss * unit), 0.0F));
    }
  }
};

/// Bounds of the scale of a group and of the code of a weight, both around zero.
struct symmetric_range {
  float scale_low;
  float scale_high;
  code_range code;
};

/// Weight i of group j of 16 is d * scale[j] * code.
struct symmetric_k_fit {
  float d = 0;
  std::array<std::int8_t, 16> scale{};
  std::array<std::int8_t, 256> code{};

  /// Fits x [256].
  [[nodiscard]] static symmetric_k_fit of(float const* x, symmetric_range const& range) noexcept {
    symmetric_k_fit best;
    float const unit = std::abs(extreme_of<256>(x));
    if (unit < smallest_unit) { return best; }
    std::array<float, 16> wanted;
    for (std::size_t j = 0; j < 16; ++j) {
      wanted[j] = fit_scale<16>(x + 16 * j, range.code, keep);
    }
    float const largest = extreme_of<16>(wanted.data());
    float best_error = std::numeric_limits<float>::max();
    for (float const level : {range.scale_low, range.scale_high, -range.scale_high}) {
      symmetric_k_fit fit;
      fit.d = round_to_f16(largest / level);
      for (int pass = 0; pass < 3 && fit.d != 0; ++pass) {
        float const error = fit.choose_scales(x, wanted, range, 1 / unit);
        if (!(error < best_error)) { break; }
        best_error = error;
        best = fit;
        fit.refine(x, unit);
      }
    }
    return best;
  }

 private:
  /// Chooses whole scales near the wanted ones, then the codes; returns the error.
  [[nodiscard]] float choose_scales(float const* x,
                                    std::array<float, 16> const& wanted,
                                    symmetric_range const& range,
                                    float inverse_unit) noexcept {
    float total = 0;
    for (std::size_t j = 0; j < 16; ++j) {
      float const middle =
          d != 0 ? nearest(wanted[j] / d, range.scale_low, range.scale_high) : 0.0F;
      float const from = std::max(middle - 1, range.scale_low);
      float const to = std::min(middle + 1, range.scale_high);
      float best = std::numeric_limits<float>::max();
      for (float s = from; s <= to; ++s) {
        float const stored = d * s;
        float const inverse = stored != 0 ? 1 / stored : 0.0F;
        float rest[16];
        for (std::size_t i = 0; i < 16; ++i) {
          float const value = x[16 * j + i];
          rest[i] = (value - stored * nearest(value * inverse, range.code.low, range.code.high)) *
                    inverse_unit;
        }
        float const error = dot<16>(rest, rest);
        if (error >= best) { continue; }
        best = error;
        scale[j] = static_cast<std::int8_t>(s);
      }
      total += best;
      float const stored = d * static_cast<float>(scale[j]);
      for (std::size_t i = 16 * j; i < 16 * (j + 1); ++i) {
        code[i] = static_cast<std::int8_t>(
            stored != 0 ? nearest(x[i] / stored, range.code.low, range.code.high) : 0.0F);
      }
    }
    return total;
  }

  /// Gives d the value that suits the codes best, by least squares.
  void refine(float const* x, float unit) noexcept {
    double norm = 0;
    double product = 0;
    for (std::size_t i = 0; i < 256; ++i) {
      double const step = static_cast<double>(scale[i / 16]) * code[i];
      norm += step * step;
      product += x[i] / unit * step;
    }
    if (norm > 0) { d = round_to_f16(static_cast<float>(product / norm * unit)); }
  }
};

}  // namespace terrace::quant::detail
