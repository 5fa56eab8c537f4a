// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstring>
#include <random>
#include <vector>

namespace terrace::test {

using generator = std::mt19937;

[[nodiscard]] inline std::vector<float> random_floats(generator& random,
                                                      std::size_t n,
                                                      float deviation = 1.0F) {
  std::normal_distribution<float> draw{0.0F, deviation};
  std::vector<float> values(n);
  for (float& value : values) { value = draw(random); }
  return values;
}

template <class T>
[[nodiscard]] bool same_bits(std::vector<T> const& a, std::vector<T> const& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

}  // namespace terrace::test
