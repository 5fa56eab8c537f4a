// SPDX-License-Identifier: Apache-2.0
#include <terrace/core/error.hpp>
#include <terrace/quant/decode.hpp>
#include <terrace/quant/encode.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <random>
#include <span>
#include <string>
#include <vector>

using namespace terrace;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;

namespace {

constexpr std::array block_types{quant_type::q8_0,
                                 quant_type::q4_0,
                                 quant_type::q4_1,
                                 quant_type::q2_k,
                                 quant_type::q3_k,
                                 quant_type::q4_k,
                                 quant_type::q5_k,
                                 quant_type::q6_k,
                                 quant_type::mxfp4};

std::vector<std::byte> encoded(quant_type type, std::span<float const> x) {
  std::vector<std::byte> bytes(row_bytes(type, x.size()));
  quant::encode_row(type, x, bytes.data());
  return bytes;
}

std::vector<float> through(quant_type type, std::span<float const> x) {
  std::vector<float> y(x.size());
  quant::decode_blocks(type, encoded(type, x).data(), x.size(), y.data());
  return y;
}

/// Sum of squared errors over the sum of squares.
double nmse(std::span<float const> x, std::span<float const> y) {
  double error = 0;
  double power = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    double const rest = double{x[i]} - double{y[i]};
    error += rest * rest;
    power += double{x[i]} * double{x[i]};
  }
  return error / power;
}

template <class Distribution>
std::vector<float> drawn(std::size_t count, Distribution distribution, float scale = 1) {
  std::mt19937 random{20};
  std::vector<float> x(count);
  for (auto& value : x) { value = scale * static_cast<float>(distribution(random)); }
  return x;
}

float largest(std::span<float const> x) {
  float most = 0;
  for (float const value : x) { most = std::max(most, std::abs(value)); }
  return most;
}

}  // namespace

TEST_CASE("encoders lose no more than the reference quantisers do", "[quant]") {
  struct limit {
    quant_type type;
    double gaussian;
    double heavy_tailed;
  };
  // Errors of ggml's quantisers on such data, as measured for the format (one digit for q8_0).
  static constexpr limit limits[] = {{quant_type::mxfp4, 0.0134, 0.017},
                                     {quant_type::q4_0, 0.0067, 0.0126},
                                     {quant_type::q2_k, 0.0720, 0.091},
                                     {quant_type::q3_k, 0.0211, 0.032},
                                     {quant_type::q4_k, 0.0050, 0.0075},
                                     {quant_type::q4_1, 0.0049, 0.0072},
                                     {quant_type::q5_k, 0.0013, 0.0019},
                                     {quant_type::q6_k, 0.00030, 0.0005},
                                     {quant_type::q8_0, 0.000035, 0.000055}};
  auto const gaussian = drawn(16 * 4096, std::normal_distribution<double>{});
  auto const heavy_tailed = drawn(16 * 4096, std::student_t_distribution<double>{4});
  for (auto const& [type, on_gaussian, on_heavy_tailed] : limits) {
    INFO(name_of(type));
    CHECK(nmse(gaussian, through(type, gaussian)) <= on_gaussian);
    // Few values make most of this error, so one draw differs from another by some percent.
    CHECK(nmse(heavy_tailed, through(type, heavy_tailed)) <= 1.03 * on_heavy_tailed);
  }
}

TEST_CASE("types of one and two bits come near the best that their levels allow", "[quant]") {
  auto const gaussian = drawn(16 * 4096, std::normal_distribution<double>{});
  // Of a Gaussian: 1 - 2 / pi with two levels, 0.1902 with three (Max 1960); scales per block do
  // better.
  CHECK(nmse(gaussian, through(quant_type::q1_0, gaussian)) <= 0.3634);
  for (auto const type : {quant_type::q2_0, quant_type::tq1_0, quant_type::tq2_0}) {
    INFO(name_of(type));
    CHECK(nmse(gaussian, through(type, gaussian)) <= 0.1902);
  }
}

TEST_CASE("ternary weights are kept as they are", "[quant]") {
  std::mt19937 random{3};
  std::vector<float> x(1024);
  for (auto& value : x) { value = 0.75F * (static_cast<float>(random() % 3) - 1); }
  for (auto const type : {quant_type::q2_0, quant_type::tq1_0, quant_type::tq2_0}) {
    INFO(name_of(type));
    CHECK(through(type, x) == x);
  }
}

TEST_CASE("quality does not depend on the size of the weights", "[quant]") {
  auto const x = drawn(4096, std::normal_distribution<double>{});
  for (auto const type : block_types) {
    double const expected = nmse(x, through(type, x));
    for (float const scale : {1e-2F, 1e3F}) {
      auto const scaled = drawn(4096, std::normal_distribution<double>{}, scale);
      INFO(name_of(type) << " at " << scale);
      CHECK(nmse(scaled, through(type, scaled)) <= 1.05 * expected);
    }
  }
}

TEST_CASE("zeros encode to zeros", "[quant]") {
  std::vector<float> const zeros(512, 0.0F);
  for (auto const type : block_types) {
    INFO(name_of(type));
    CHECK(largest(through(type, zeros)) == 0);
  }
}

TEST_CASE("one large value among small ones is kept", "[quant]") {
  auto x = drawn(512, std::normal_distribution<double>{}, 1e-3F);
  x[100] = 50;
  x[300] = -50;
  for (auto const type : block_types) {
    auto const y = through(type, x);
    INFO(name_of(type));
    CHECK(std::abs(y[100] - 50) < 5);
    CHECK(std::abs(y[300] + 50) < 5);
    CHECK(nmse(x, y) < 0.01);
  }
}

TEST_CASE("values too small for a scale fade to zero", "[quant]") {
  for (float const scale : {1e-7F, 1e-9F, 1e-30F, std::numeric_limits<float>::denorm_min()}) {
    auto const x = drawn(512, std::uniform_real_distribution<double>{-1, 1}, scale);
    for (auto const type : block_types) {
      auto const y = through(type, x);
      INFO(name_of(type) << " at " << scale);
      CHECK(largest(y) <= 2 * largest(x));
      CHECK(std::all_of(y.begin(), y.end(), [](float value) { return std::isfinite(value); }));
    }
  }
}

TEST_CASE("the largest values a type holds stay finite", "[quant]") {
  for (auto const type : block_types) {
    float const most = quant::with_format(type, []<class Format>() -> float {
      if constexpr (quant::encodable_format<Format>) { return Format::max_magnitude; }
      return 0;
    });
    auto x = drawn(512, std::uniform_real_distribution<double>{-1, 1}, most);
    x[7] = most;
    x[77] = -most;
    INFO(name_of(type) << " holds " << most);
    CHECK(nmse(x, through(type, x)) < 0.05);
    x[9] = std::nextafter(most, std::numeric_limits<float>::infinity());
    CHECK_THROWS_MATCHES(
        encoded(type, x), contract_error, MessageMatches(ContainsSubstring("value 9 of 512")));
  }
}

TEST_CASE("constant blocks of either sign are kept", "[quant]") {
  for (float const value : {0.37F, -0.37F}) {
    std::vector<float> const x(256, value);
    for (auto const type : block_types) {
      INFO(name_of(type) << " of " << value);
      CHECK(nmse(x, through(type, x)) < (type == quant_type::mxfp4 ? 0.02 : 1e-4));
    }
  }
}

TEST_CASE("encoding decoded values again does not change them", "[quant]") {
  auto const x = drawn(8192, std::normal_distribution<double>{});
  for (auto const type : {quant_type::q1_0,
                          quant_type::q2_0,
                          quant_type::tq1_0,
                          quant_type::tq2_0,
                          quant_type::q8_0,
                          quant_type::q4_0,
                          quant_type::q4_1,
                          quant_type::mxfp4,
                          quant_type::f16,
                          quant_type::bf16,
                          quant_type::f32}) {
    auto const once = through(type, x);
    INFO(name_of(type));
    CHECK(through(type, once) == once);
  }
  for (auto const type :
       {quant_type::q2_k, quant_type::q3_k, quant_type::q4_k, quant_type::q5_k, quant_type::q6_k}) {
    // Two levels of rounded scales need not be found again exactly, but nearly.
    auto const once = through(type, x);
    INFO(name_of(type));
    CHECK(nmse(once, through(type, once)) < 0.02 * nmse(x, once));
  }
}

TEST_CASE("values that are not finite are refused by place", "[quant]") {
  for (float const bad : {std::numeric_limits<float>::quiet_NaN(),
                          std::numeric_limits<float>::infinity(),
                          -std::numeric_limits<float>::infinity()}) {
    std::vector<float> x(256, 1.0F);
    x[17] = bad;
    for (auto const& traits : quant_table) {
      if (!quant::is_encodable(traits.type)) { continue; }
      INFO(traits.name);
      CHECK_THROWS_MATCHES(encoded(traits.type, x),
                           contract_error,
                           MessageMatches(ContainsSubstring("value 17 of 256")));
    }
  }
}

TEST_CASE("partial blocks and types without an encoder are refused", "[quant]") {
  std::vector<float> const x(96, 1.0F);
  std::array<std::byte, 256> out{};
  CHECK_THROWS_AS(quant::encode_row(quant_type::q4_k, x, out.data()), contract_error);
  CHECK_THROWS_AS(quant::encode_row(quant_type::iq4_nl, x, out.data()), not_supported);
  CHECK_FALSE(quant::is_encodable(quant_type::iq4_nl));
  CHECK_FALSE(quant::is_encodable(quant_type{31}));
  CHECK(quant::is_encodable(quant_type::mxfp4));
}
