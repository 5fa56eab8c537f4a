// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/quant/detail/fit.hpp>
#include <terrace/quant/k_scales.hpp>

#include <array>
#include <cstdint>

namespace terrace::quant::detail {

/// What q4_k and q5_k store for 256 weights, before packing: weight i of sub-block j is
/// d * scale[j] * code[32 j + i] - dmin * minimum[j], d and dmin being half-precision numbers.
struct k_fit {
  float d = 0;
  float dmin = 0;
  std::array<std::uint8_t, 8> scale{};
  std::array<std::uint8_t, 8> minimum{};
  std::array<std::uint8_t, 256> code{};
};

/// Squared error of one sub-block under a scale and a minimum, in units of `unit` squared.
[[nodiscard]] inline float sub_block_error(float const* x,
                                           affine const& fit,
                                           float levels,
                                           float unit) noexcept {
  float const inverse = fit.scale > 0 ? 1.0F / fit.scale : 0.0F;
  float const inverse_unit = 1.0F / unit;
  float rest[32];
  for (int i = 0; i < 32; ++i) {
    float const shifted = x[i] + fit.minimum;
    rest[i] = (shifted - fit.scale * nearest(shifted * inverse, 0, levels)) * inverse_unit;
  }
  return dot<32>(rest, rest);
}

/// Chooses each sub-block's 6-bit scale and minimum near `wanted`, given d and dmin; returns the
/// squared error.
[[nodiscard]] inline float choose_k_scales(float const* x,
                                           std::array<affine, 8> const& wanted,
                                           float levels,
                                           float unit,
                                           k_fit& fit) noexcept {
  float total = 0;
  for (std::size_t j = 0; j < 8; ++j) {
    float const scale = fit.d > 0 ? nearest(wanted[j].scale / fit.d, 0, 63) : 0.0F;
    float const minimum = fit.dmin > 0 ? nearest(wanted[j].minimum / fit.dmin, 0, 63) : 0.0F;
    float best = std::numeric_limits<float>::max();
    for (float s = std::max(scale - 1, 0.0F); s <= std::min(scale + 1, 63.0F); ++s) {
      for (float m = std::max(minimum - 1, 0.0F); m <= std::min(minimum + 1, 63.0F); ++m) {
        affine const stored{.scale = fit.d * s, .minimum = fit.dmin * m};
        float const error = sub_block_error(x + 32 * j, stored, levels, unit);
        if (error < best) {
          best = error;
          fit.scale[j] = static_cast<std::uint8_t>(s);
          fit.minimum[j] = static_cast<std::uint8_t>(m);
        }
      }
    }
    total += best;
  }
  return total;
}

/// Fills in the codes that go with the scales and minima of `fit`.
inline void choose_k_codes(float const* x, float levels, k_fit& fit) noexcept {
  for (std::size_t i = 0; i < 256; ++i) {
    float const scale = fit.d * static_cast<float>(fit.scale[i / 32]);
    float const shifted = x[i] + fit.dmin * static_cast<float>(fit.minimum[i / 32]);
    fit.code[i] = static_cast<std::uint8_t>(scale > 0 ? nearest(shifted / scale, 0, levels) : 0);
  }
}

/// d and dmin that suit the codes of `fit` best, by least squares; zero determinants leave them as
/// they are.
inline void refine_k_scales(float const* x, float unit, k_fit& fit) noexcept {
  double ss = 0;
  double sm = 0;
  double mm = 0;
  double xs = 0;
  double xm = 0;
  for (std::size_t i = 0; i < 256; ++i) {
    double const s = static_cast<double>(fit.scale[i / 32]) * fit.code[i];
    double const m = -static_cast<double>(fit.minimum[i / 32]);
    double const value = x[i] / unit;
    ss += s * s;
    sm += s * m;
    mm += m * m;
    xs += value * s;
    xm += value * m;
  }
  double const determinant = ss * mm - sm * sm;
  double const d = determinant > 0 ? (xs * mm - xm * sm) / determinant : (ss > 0 ? xs / ss : 0);
  double const dmin = determinant > 0 ? (xm * ss - xs * sm) / determinant : 0;
  if (d >= 0 && dmin >= 0) {
    fit.d = round_to_f16(static_cast<float>(d * unit));
    fit.dmin = round_to_f16(static_cast<float>(dmin * unit));
  }
}

/// Fits 256 weights with codes 0 to `levels`.
[[nodiscard]] inline k_fit fit_k(float const* x, float levels) noexcept {
  k_fit best;
  float const unit = std::abs(extreme_of<256>(x));
  if (unit == 0) { return best; }
  std::array<affine, 8> wanted;
  affine largest;
  for (std::size_t j = 0; j < 8; ++j) {
    wanted[j] = fit_affine<32>(x + 32 * j, levels, false, keep);
    largest.scale = std::max(largest.scale, wanted[j].scale);
    largest.minimum = std::max(largest.minimum, wanted[j].minimum);
  }
  best.d = round_to_f16(largest.scale / 63);
  best.dmin = round_to_f16(largest.minimum / 63);
  float best_error = choose_k_scales(x, wanted, levels, unit, best);
  choose_k_codes(x, levels, best);
  for (int pass = 0; pass < 3; ++pass) {
    k_fit next = best;
    refine_k_scales(x, unit, next);
    float const error = choose_k_scales(x, wanted, levels, unit, next);
    if (!(error < best_error)) { break; }
    best_error = error;
    best = next;
    choose_k_codes(x, levels, best);
  }
  return best;
}

}  // namespace terrace::quant::detail
