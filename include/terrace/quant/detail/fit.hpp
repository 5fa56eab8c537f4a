// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/quant/half.hpp>

#include <algorithm>
#include <cmath>
#include <limits>

// Fits of a few float32 values to whole codes under one scale (and offset), by trying a range of
// scales, improving each by least squares and keeping the one that leaves the least squared error
// after its scale was rounded as it will be stored. Work is done on values divided by the largest,
// so neither tiny nor huge weights lose precision.
namespace terrace::quant::detail {

/// The nearest whole number within [low, high], ties to even; low and high are whole.
[[nodiscard]] inline float nearest(float value, float low, float high) noexcept {
  constexpr float whole = 0x1.8p23F;  // float32 has no fraction bits up there
  return (std::min(std::max(value, low), high) + whole) - whole;
}

/// Rounds to half precision, staying finite.
[[nodiscard]] inline float round_to_f16(float value) noexcept {
  return f16_to_f32(f32_to_f16(std::min(std::max(value, -65504.0F), 65504.0F)));
}
/// Sum over i < Count of a[i] * b[i], in eight partial sums that fill a vector register.
template <int Count>
[[nodiscard]] float dot(float const* a, float const* b) noexcept {
  static_assert(Count % 8 == 0);
  float lane[8] = {};
  for (int i = 0; i < Count; i += 8) {
    for (int l = 0; l < 8; ++l) { lane[l] += a[i + l] * b[i + l]; }
  }
  return ((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7]));
}

/// For scales that are rounded later.
[[nodiscard]] inline float keep(float value) noexcept { return value; }

/// Codes a fit may use, and which code the largest value is tried on: from `nearest_level` to
/// `farthest_level` in steps.
struct code_range {
  float low;
  float high;
  float nearest_level;
  float farthest_level;
  float step;
};

/// Codes -1, 0 and 1; the largest value may be several times the scale.
inline constexpr code_range ternary_codes{
    .low = -1, .high = 1, .nearest_level = 1, .farthest_level = 8, .step = 0.25F};

/// The value of largest magnitude among x[0 .. Count), with its sign.
template <int Count>
[[nodiscard]] float extreme_of(float const* x) noexcept {
  float extreme = 0;
  for (int i = 0; i < Count; ++i) {
    if (std::abs(x[i]) > std::abs(extreme)) { extreme = x[i]; }
  }
  return extreme;
}

/// The scale for x ~ scale * code; zero if all of x is zero or too small for `round`.
template <int Count, class Round>
[[nodiscard]] float fit_scale(float const* x, code_range const& codes, Round round) noexcept {
  float const extreme = extreme_of<Count>(x);
  if (extreme == 0) { return 0; }
  float u[Count];
  for (int i = 0; i < Count; ++i) { u[i] = x[i] / extreme; }
  float best = 0;
  float best_error = std::numeric_limits<float>::max();
  auto const consider = [&](float level) {
    float work[Count];
    for (int i = 0; i < Count; ++i) { work[i] = nearest(u[i] * level, codes.low, codes.high); }
    float const norm = dot<Count>(work, work);
    float const scale = norm > 0 ? round(extreme * (dot<Count>(u, work) / norm)) : 0.0F;
    if (scale == 0) { return; }
    float const stored = scale / extreme;
    float const inverse = extreme / scale;
    for (int i = 0; i < Count; ++i) {
      work[i] = u[i] - stored * nearest(u[i] * inverse, codes.low, codes.high);
    }
    float const error = dot<Count>(work, work);
    if (error < best_error) {
      best_error = error;
      best = scale;
    }
  };
  for (float level = codes.nearest_level; level <= codes.farthest_level; level += codes.step) {
    consider(level);
    consider(-level);
  }
  return best;
}

/// value = scale * code - minimum
struct affine {
  float scale = 0;
  float minimum = 0;
};

/// The scale and minimum for x ~ scale * code - minimum with codes 0 to `levels`; `signed_minimum`
/// says whether the minimum may be negative (all of x positive).
template <int Count, class Round>
[[nodiscard]] affine fit_affine(float const* x,
                                float levels,
                                bool signed_minimum,
                                Round round) noexcept {
  auto [low, high] = std::minmax_element(x, x + Count);
  double const base = signed_minimum ? *low : std::min(0.0F, *low);
  double const range = *high - base;
  affine best{.scale = 0, .minimum = round(static_cast<float>(-base))};
  if (!(range > 0)) { return best; }
  float u[Count];
  for (int i = 0; i < Count; ++i) { u[i] = static_cast<float>((x[i] - base) / range); }
  float ones[Count];
  std::fill_n(ones, Count, 1.0F);
  float const sum_u = dot<Count>(u, ones);
  float best_error = std::numeric_limits<float>::max();
  for (float level = 0.75F * levels; level <= levels + 1; level += levels / 48) {
    float work[Count];
    for (int i = 0; i < Count; ++i) { work[i] = nearest(u[i] * level, 0, levels); }
    float const sum_code = dot<Count>(work, ones);
    float const sum_square = dot<Count>(work, work);
    float const sum_u_code = dot<Count>(u, work);
    float const determinant = Count * sum_square - sum_code * sum_code;
    double const slope =
        determinant > 0 ? (Count * sum_u_code - sum_code * sum_u) / determinant : 0.0F;
    double scale = range * slope;
    double minimum = -(base + range * (sum_u - slope * sum_code) / Count);
    if (!signed_minimum && minimum < 0 && sum_square > 0) {
      minimum = 0;
      scale = (base * sum_code + range * sum_u_code) / sum_square;
    }
    affine const fit{.scale = round(static_cast<float>(scale)),
                     .minimum = round(static_cast<float>(minimum))};
    if (!(fit.scale > 0)) { continue; }
    auto const stored = static_cast<float>(fit.scale / range);
    auto const inverse = static_cast<float>(range / fit.scale);
    auto const shift = static_cast<float>((-fit.minimum - base) / range);
    for (int i = 0; i < Count; ++i) {
      float const shifted = u[i] - shift;
      work[i] = shifted - stored * nearest(shifted * inverse, 0, levels);
    }
    float const error = dot<Count>(work, work);
    if (error < best_error) {
      best_error = error;
      best = fit;
    }
  }
  return best;
}

}  // namespace terrace::quant::detail
