// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/model/config.hpp>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

namespace terrace::model {

/// Rotation angle per position of each pair, and the factor on sine and cosine.
struct rope_frequencies {
  std::vector<float> per_pair;  ///< radians per position, [rope_dim / 2]
  float magnitude = 1;
};

namespace detail {

/// Llama 3.1: long wavelengths are divided by `factor`, short ones kept, those between blended.
[[nodiscard]] inline double stretch_llama3(double frequency, rope_scaling const& scaling) {
  double const wavelength = 2 * std::numbers::pi / frequency;
  if (wavelength < scaling.original_context / scaling.high_freq_factor) { return frequency; }
  if (wavelength > scaling.original_context / scaling.low_freq_factor) {
    return frequency / scaling.factor;
  }
  double const blend = (scaling.original_context / wavelength - scaling.low_freq_factor) /
                       (scaling.high_freq_factor - scaling.low_freq_factor);
  return (1 - blend) * frequency / scaling.factor + blend * frequency;
}

/// YaRN: pair numbers between which the ramp from unscaled to fully scaled runs.
struct yarn_ramp {
  double low;
  double high;

  yarn_ramp(int rope_dim, double base, rope_scaling const& scaling) {
    auto const pair_turning = [&](double turns) {
      return rope_dim * std::log(scaling.original_context / (2 * std::numbers::pi * turns)) /
             (2 * std::log(base));
    };
    low = std::max(std::floor(pair_turning(scaling.beta_fast)), 0.0);
    high = std::min(std::ceil(pair_turning(scaling.beta_slow)), static_cast<double>(rope_dim - 1));
    if (low == high) { high += 0.001; }
  }
  [[nodiscard]] double at(int pair) const {
    return std::clamp((pair - low) / (high - low), 0.0, 1.0);
  }
};

}  // namespace detail

/// Frequencies of a model with `rope_dim` rotated dimensions. Computed in double, rounded once.
/// Source: YaRN as in the DeepSeek-V3 reference; Llama 3.1 as published with the weights.
[[nodiscard]] inline rope_frequencies make_frequencies(int rope_dim,
                                                       double base,
                                                       rope_scaling const& scaling) {
  rope_frequencies result;
  detail::yarn_ramp const ramp{rope_dim, base, scaling};
  for (int pair = 0; pair < rope_dim / 2; ++pair) {
    double const plain = std::pow(base, -2.0 * pair / rope_dim);
    double value = plain;
    if (scaling.type == rope_scaling::kind::llama3) {
      value = detail::stretch_llama3(plain, scaling);
    }
    if (scaling.type == rope_scaling::kind::yarn) {
      double const mix = ramp.at(pair);
      value = plain / scaling.factor * mix + plain * (1 - mix);
    }
    result.per_pair.push_back(static_cast<float>(value));
  }
  return result;
}

/// YaRN's magnitude for one `mscale`: 1 + log_multiplier * ln(factor).
[[nodiscard]] inline double yarn_magnitude(rope_scaling const& scaling) {
  if (scaling.type != rope_scaling::kind::yarn || scaling.factor <= 1) { return 1; }
  return 1 + scaling.log_multiplier * std::log(scaling.factor);
}

/// Scaling keys under `{arch}.rope.scaling`. Errors: not_supported for another type, format_error
/// for bad numbers.
[[nodiscard]] inline rope_scaling read_scaling(metadata const& meta, std::string const& arch) {
  rope_scaling scaling;
  auto const prefix = arch + ".rope.scaling.";
  auto const number = [&](char const* name, double fallback) {
    return meta.try_number(prefix + name).value_or(fallback);
  };
  auto const type = meta.try_string(prefix + "type").value_or("none");
  if (type == "none" || type == "default") { return scaling; }
  if (type != "llama3" && type != "yarn") {
    throw not_supported{meta.source() + ": rope scaling of type `" + type +
                        "` is not supported; none, llama3 and yarn are"};
  }
  scaling.type = type == "yarn" ? rope_scaling::kind::yarn : rope_scaling::kind::llama3;
  scaling.factor = number("factor", 1);
  scaling.original_context = number("original_context_length", 0);
  scaling.low_freq_factor = number("low_freq_factor", 1);
  scaling.high_freq_factor = number("high_freq_factor", 4);
  scaling.beta_fast = number("yarn_beta_fast", 32);
  scaling.beta_slow = number("yarn_beta_slow", 1);
  scaling.log_multiplier = number("yarn_log_multiplier", 0);
  bool const sensible = scaling.factor > 0 && scaling.original_context > 0 &&
                        scaling.beta_fast > 0 && scaling.beta_slow > 0 &&
                        scaling.low_freq_factor > 0 && scaling.high_freq_factor > 0;
  if (!sensible) {
    throw format_error{meta.source() + ": the keys under `" + prefix +
                       "*` hold a number that is zero, negative or missing; the file is damaged"};
  }
  return scaling;
}

}  // namespace terrace::model
