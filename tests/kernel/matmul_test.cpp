// SPDX-License-Identifier: Apache-2.0
#include "kernel/support.hpp"

#include <terrace/core/error.hpp>
#include <terrace/kernel/cpu/matmul.hpp>
#include <terrace/kernel/reference/matmul.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace terrace::test {
namespace {

/// What each product may be off from the sum in double.
///
/// exact: sums of n products of float32 weights and activations, any order, are off by at most n u
/// sum |w x| (Higham,
///        Accuracy and Stability, section 3.1; u = 2^-24, a fused step rounds once, n counts the
///        longest chain).
/// fast:  x is first replaced by scale * code, which is off by at most scale / 2 (a few u more), so
///        sum |w| scale / 2; then a chain of at most n = 2 (blocks / 4 + 1) + 8 roundings of terms
///        (integer sums are exact up to one rounding) of magnitude at most (|w| + 2 |m|) (|x| +
///        scale / 2), m being the block's minimum, which the sum takes apart from w = s q + m.
struct bounds {
  double exact;
  double fast;
};

bounds bounds_of(float const* w, float const* minimum, float const* x, std::size_t cols) {
  constexpr double u = 0x1p-24;
  double plain = 0;
  double rounded = 0;
  double terms = 0;
  for (std::size_t b = 0; b < cols; b += 32) {
    std::size_t const end = std::min(cols, b + 32);
    double largest = 0;
    for (std::size_t i = b; i < end; ++i) { largest = std::max(largest, std::fabs(double{x[i]})); }
    double const half_step = largest / 127 / 2 * (1 + 8 * u);
    for (std::size_t i = b; i < end; ++i) {
      double const weight = std::fabs(double{w[i]});
      plain += weight * std::fabs(double{x[i]});
      rounded += weight * half_step;
      terms += (weight + 2 * std::fabs(double{minimum[i]})) * (std::fabs(double{x[i]}) + half_step);
    }
  }
  auto const n = static_cast<double>(cols);
  double const tiny = n * 0x1p-149;  // what products below the normal range lose
  return {(n / 16 + 8) * u * plain + tiny, rounded + (2 * (n / 128 + 1) + 8) * u * terms + tiny};
}

/// The value of code 0 beside each weight, for types that add a minimum; zeros for the others.
std::vector<float> minima_of(matrix const& m) {
  std::vector<float> values(m.view.rows * m.view.cols);
  quant_type const type = m.view.type;
  bool const super = type == quant_type::q4_k || type == quant_type::q5_k;
  if (type != quant_type::q4_1 && !super) { return values; }
  std::size_t const header = super ? 16 : 4;
  std::size_t const bytes = traits_of(type).block_bytes;
  std::vector<std::byte> zeroed(m.view.data,
                                m.view.data + m.view.rows * row_bytes(type, m.view.cols));
  for (std::size_t at = 0; at < zeroed.size(); at += bytes) {
    std::fill_n(zeroed.begin() + at + header, bytes - header, std::byte{0});
  }
  quant::decode_blocks(type, zeroed.data(), values.size(), values.data());
  return values;
}

bool has_integer_product(quant_type type) {
  return std::find(std::begin(integer_types), std::end(integer_types), type) !=
         std::end(integer_types);
}

std::vector<quant_type> all_types() {
  std::vector<quant_type> types(std::begin(integer_types), std::end(integer_types));
  types.insert(types.end(), std::begin(float_types), std::end(float_types));
  return types;
}

void check_products(matrix const& m, std::vector<float> const& x) {
  std::size_t const cols = m.view.cols;
  std::size_t const rows = m.view.rows;
  std::size_t const tokens = x.size() / cols;
  std::vector<float> weights(rows * cols);
  quant::decode_rows(m.view, 0, rows, weights);
  auto const minima = minima_of(m);
  std::vector<float> expected(tokens * rows);
  kernel::reference::matmul(m.view, x.data(), tokens, expected.data(), rows);
  for (numerics const mode : {numerics::exact, numerics::fast}) {
    bool const integer = mode == numerics::fast && has_integer_product(m.view.type);
    auto const y = product(m.view, mode, x, 2);
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < y.size(); ++i) {
      std::size_t const row = i % rows * cols;
      bounds const bound =
          bounds_of(weights.data() + row, minima.data() + row, x.data() + i / rows * cols, cols);
      double const error = std::fabs(double{y[i]} - double{expected[i]});
      if (!(error <= (integer ? bound.fast : bound.exact))) { ++wrong; }
    }
    CAPTURE(name_of(m.view.type), name_of(mode), rows, cols, tokens);
    CHECK(wrong == 0);
  }
}

TEST_CASE("products agree with decode-and-dot for every type and number of tokens", "[kernel]") {
  quant_type const type = GENERATE(from_range(all_types()));
  std::size_t const tokens = GENERATE(1U, 2U, 3U, 7U, 64U);
  generator random{static_cast<unsigned>(type) * 100 + static_cast<unsigned>(tokens)};
  std::size_t const block = traits_of(type).block_elements;
  std::size_t const cols = block == 256 ? 768 : 416;
  matrix const m = random_matrix(type, 21, cols / block * block, random);
  check_products(m, random_floats(random, tokens * m.view.cols));
}

TEST_CASE("products agree with decode-and-dot for rows of one block and of odd lengths",
          "[kernel]") {
  quant_type const type = GENERATE(from_range(all_types()));
  std::size_t const blocks = GENERATE(1U, 2U, 3U, 5U, 37U);
  generator random{static_cast<unsigned>(type) + static_cast<unsigned>(blocks)};
  matrix const m = random_matrix(type, 5, blocks * traits_of(type).block_elements, random);
  check_products(m, random_floats(random, 19 * m.view.cols));
}

TEST_CASE("products of long rows agree with decode-and-dot", "[kernel]") {
  quant_type const type = GENERATE(from_range(all_types()));
  generator random{static_cast<unsigned>(type)};
  matrix const m = random_matrix(type, 6, 7168, random);
  check_products(m, random_floats(random, 2 * m.view.cols));
}

TEST_CASE("one-hot activations give single weights", "[kernel]") {
  quant_type const type = GENERATE(from_range(all_types()));
  generator random{static_cast<unsigned>(type) + 7};
  matrix const m = random_matrix(type, 9, 512, random);
  std::vector<float> x(64 * 512);
  for (std::size_t t = 0; t < 64; ++t) { x[t * 512 + t * 8 + t % 8] = t % 2 == 0 ? 1.0F : -3.0F; }
  check_products(m, x);
}

TEST_CASE("zero activations give zeros", "[kernel]") {
  quant_type const type = GENERATE(from_range(all_types()));
  generator random{static_cast<unsigned>(type) + 8};
  matrix const m = random_matrix(type, 9, 512, random);
  numerics const mode = GENERATE(numerics::exact, numerics::fast);
  auto const y = product(m.view, mode, std::vector<float>(20 * 512), 2);
  CHECK(std::all_of(y.begin(), y.end(), [](float v) { return v == 0.0F; }));
}

TEST_CASE("products agree with decode-and-dot for the largest and smallest activations",
          "[kernel]") {
  quant_type const type = GENERATE(from_range(all_types()));
  float const magnitude = GENERATE(1e30F, 1e-30F, 1e-38F);
  generator random{static_cast<unsigned>(type) + 9};
  matrix const m = random_matrix(type, 9, 512, random, 0.01F);
  auto x = random_floats(random, 18 * 512, magnitude);
  if (magnitude < 1e-37F && has_integer_product(type)) {
    // Below the normal range of float32 a block of activations counts as zero.
    auto const y = product(m.view, numerics::fast, x, 2);
    CHECK(std::all_of(y.begin(), y.end(), [](float v) { return std::fabs(v) < 1e-33F; }));
  } else {
    check_products(m, x);
  }
}

/// Encoded blocks whose scale fields are `bits`.
matrix matrix_with_scale(quant_type type, std::uint16_t bits, generator& random) {
  matrix m = random_matrix(type, 9, 512, random);
  auto const traits = traits_of(type);
  for (std::size_t at = 1; at < m.data.size(); at += traits.block_bytes) {
    std::byte* const block = m.data.data() + at;
    std::size_t const field = type == quant_type::q6_k ? 208 : 0;
    std::memcpy(block + field, &bits, sizeof bits);
    bool const has_minimum =
        type == quant_type::q4_1 || type == quant_type::q4_k || type == quant_type::q5_k;
    if (has_minimum) { std::memcpy(block + 2, &bits, sizeof bits); }
  }
  return m;
}

TEST_CASE("products agree with decode-and-dot for the largest and smallest half-precision scales",
          "[kernel]") {
  quant_type const type = GENERATE(quant_type::q8_0,
                                   quant_type::q4_0,
                                   quant_type::q4_1,
                                   quant_type::q4_k,
                                   quant_type::q5_k,
                                   quant_type::q6_k,
                                   quant_type::iq4_nl,
                                   quant_type::iq4_xs);
  int const bits = GENERATE(0x7BFF, 0xFBFF, 0x0001, 0x8001, 0x03FF, 0x0400, 0x0000, 0x8000);
  generator random{static_cast<unsigned>(bits)};
  matrix const m = matrix_with_scale(type, static_cast<std::uint16_t>(bits), random);
  check_products(m, random_floats(random, 18 * 512));
}

TEST_CASE("products agree with decode-and-dot for every power of two of mxfp4", "[kernel]") {
  generator random{4};
  int const exponent = GENERATE(range(0, 240));
  matrix m = random_matrix(quant_type::mxfp4, 3, 64, random);
  for (std::size_t at = 1; at < m.data.size(); at += 17) {
    m.data[at] = static_cast<std::byte>(exponent);
  }
  check_products(m, random_floats(random, 2 * 64));
}

TEST_CASE("products agree with decode-and-dot for group scales of every type", "[kernel]") {
  quant_type const scales = GENERATE(quant_type::f32, quant_type::f16, quant_type::bf16);
  std::size_t const tokens = GENERATE(1U, 18U);
  generator random{static_cast<unsigned>(scales) + static_cast<unsigned>(tokens)};
  matrix m = random_matrix(quant_type::int4_g32, 9, 512, random);
  std::size_t const bytes = traits_of(scales).block_bytes;
  m.scales.resize(m.view.rows * (m.view.cols / 32) * bytes);
  for (std::size_t at = 0; at < m.scales.size(); at += bytes) {
    set_scales(scales, m.scales.data() + at, 0.1F, random);
  }
  m.view.scale_type = scales;
  m.view.scales = m.scales.data();
  check_products(m, random_floats(random, tokens * m.view.cols));
}

TEST_CASE("what is not finite reaches the result and nothing else", "[kernel]") {
  quant_type const type = GENERATE(from_range(all_types()));
  numerics const mode = GENERATE(numerics::exact, numerics::fast);
  float const bad = GENERATE(std::numeric_limits<float>::quiet_NaN(),
                             std::numeric_limits<float>::infinity(),
                             -std::numeric_limits<float>::infinity());
  generator random{static_cast<unsigned>(type) + 11};
  matrix const m = random_matrix(type, 9, 512, random);
  auto x = random_floats(random, 20 * 512);
  auto const clean = product(m.view, mode, x, 2);
  x[18 * 512 + 300] = bad;
  auto const y = product(m.view, mode, x, 2);
  CHECK(std::none_of(
      y.begin() + 18 * 9, y.begin() + 19 * 9, [](float v) { return std::isfinite(v); }));
  CHECK(same_bits({y.data(), 18 * 9}, {clean.data(), 18 * 9}));
  CHECK(same_bits({y.data() + 19 * 9, 9}, {clean.data() + 19 * 9, 9}));
}

TEST_CASE("a product has the same bits for any number of threads", "[kernel]") {
  quant_type const type = GENERATE(from_range(all_types()));
  numerics const mode = GENERATE(numerics::exact, numerics::fast);
  generator random{static_cast<unsigned>(type) + 12};
  matrix const m = random_matrix(type, 83, 768, random);
  std::size_t const tokens = GENERATE(1U, 40U);
  auto const x = random_floats(random, tokens * 768);
  auto const one = product(m.view, mode, x, 1);
  CHECK(same_bits(one, product(m.view, mode, x, 2)));
  CHECK(same_bits(one, product(m.view, mode, x, 8)));
}

TEST_CASE("a token's product has the same bits in any company", "[kernel]") {
  quant_type const type = GENERATE(from_range(all_types()));
  numerics const mode = GENERATE(numerics::exact, numerics::fast);
  // Past a piece; without and with whole groups of four blocks.
  std::size_t const blocks = GENERATE(35U, 36U);
  std::size_t const block = traits_of(type).block_elements;
  std::size_t const cols = block == 256 ? 1280 : 32 * blocks / block * block;
  generator random{static_cast<unsigned>(type) + 13};
  matrix const m = random_matrix(type, 23, cols, random);
  auto const x = random_floats(random, 512 * m.view.cols);
  std::vector<float> alone;
  for (std::size_t t = 0; t < 512; ++t) {
    std::vector<float> const row(x.begin() + t * m.view.cols, x.begin() + (t + 1) * m.view.cols);
    auto const y = product(m.view, mode, row, 1);
    alone.insert(alone.end(), y.begin(), y.end());
  }
  for (std::size_t const tokens :
       {2U, 3U, 4U, 5U, 7U, 13U, 15U, 16U, 17U, 20U, 21U, 33U, 64U, 512U}) {
    std::vector<float> const part(x.begin(), x.begin() + tokens * m.view.cols);
    CAPTURE(name_of(type), name_of(mode), tokens);
    CHECK(same_bits({alone.data(), tokens * 23}, product(m.view, mode, part, 2)));
  }
}

TEST_CASE("a row's product has the same bits at any place and address", "[kernel]") {
  quant_type const type = GENERATE(from_range(all_types()));
  numerics const mode = GENERATE(numerics::exact, numerics::fast);
  generator random{static_cast<unsigned>(type) + 14};
  matrix const m = random_matrix(type, 16, 512, random);
  std::size_t const tokens = GENERATE(1U, 18U);
  auto const x = random_floats(random, tokens * 512);
  auto const whole = product(m.view, mode, x, 1);
  for (std::size_t row = 0; row < 16; ++row) {
    std::vector<float> column(tokens);
    for (std::size_t t = 0; t < tokens; ++t) { column[t] = whole[t * 16 + row]; }
    matrix_view single = m.view.rows_from(row, 1);
    std::vector<std::byte> moved(row_bytes(type, 512) + row);
    std::memcpy(moved.data() + row, single.data, row_bytes(type, 512));
    single.data = moved.data() + row;
    CHECK(same_bits(column, product(single, mode, x, 1)));
  }
}

TEST_CASE("results keep their distance and leave what lies between alone", "[kernel]") {
  generator random{15};
  numerics const mode = GENERATE(numerics::exact, numerics::fast);
  std::size_t const tokens = GENERATE(1U, 6U, 40U);
  std::size_t const rows = GENERATE(1U, 2U, 3U, 4U, 9U);
  matrix const m = random_matrix(quant_type::q8_0, rows, 64, random);
  auto const x = random_floats(random, tokens * 64);
  kernel::cpu::thread_pool pool{2};
  kernel::cpu::activations input;
  input.assign(pool, mode, x.data(), tokens, 64, 64);
  std::vector<float> y(tokens * 16, 99.0F);
  kernel::cpu::matmul(pool, m.view, input, y.data(), 16);
  auto const packed = product(m.view, mode, x, 1);
  for (std::size_t t = 0; t < tokens; ++t) {
    CHECK(same_bits({y.data() + t * 16, rows}, {packed.data() + t * rows, rows}));
    CHECK(std::all_of(
        y.begin() + t * 16 + rows, y.begin() + (t + 1) * 16, [](float v) { return v == 99.0F; }));
  }
}

TEST_CASE("activations may lie apart", "[kernel]") {
  generator random{16};
  numerics const mode = GENERATE(numerics::exact, numerics::fast);
  matrix const m = random_matrix(quant_type::q4_k, 8, 256, random);
  auto const wide = random_floats(random, 20 * 300);
  std::vector<float> packed;
  for (std::size_t t = 0; t < 20; ++t) {
    packed.insert(packed.end(), wide.begin() + t * 300, wide.begin() + t * 300 + 256);
  }
  kernel::cpu::thread_pool pool{2};
  kernel::cpu::activations input;
  input.assign(pool, mode, wide.data(), 20, 256, 300);
  std::vector<float> y(20 * 8);
  kernel::cpu::matmul(pool, m.view, input, y.data(), 8);
  CHECK(same_bits(y, product(m.view, mode, packed, 1)));
}

TEST_CASE("shapes that disagree are refused", "[kernel]") {
  generator random{17};
  kernel::cpu::thread_pool pool{1};
  kernel::cpu::activations input;
  auto const x = random_floats(random, 512);
  float y[8];
  input.assign(pool, numerics::fast, x.data(), 1, 256, 256);
  matrix const wide = random_matrix(quant_type::q8_0, 8, 512, random);
  CHECK_THROWS_AS(kernel::cpu::matmul(pool, wide.view, input, y, 8), contract_error);
  matrix ragged = random_matrix(quant_type::q4_k, 8, 256, random);
  ragged.view.cols = 128;
  input.assign(pool, numerics::fast, x.data(), 1, 128, 128);
  CHECK_THROWS_AS(kernel::cpu::matmul(pool, ragged.view, input, y, 8), contract_error);
  matrix bare = random_matrix(quant_type::int4_g32, 8, 128, random);
  bare.view.scales = nullptr;
  CHECK_THROWS_AS(kernel::cpu::matmul(pool, bare.view, input, y, 8), contract_error);
  CHECK_THROWS_AS(input.assign(pool, numerics::fast, x.data(), 2, 128, 64), contract_error);
}

TEST_CASE("decode_rows gives the asked rows in order", "[kernel]") {
  generator random{18};
  matrix const m = random_matrix(quant_type::q6_k, 10, 256, random);
  std::vector<std::uint32_t> const rows{7, 0, 7, 9};
  std::vector<float> out(4 * 256);
  kernel::cpu::decode_rows(m.view, rows, out.data());
  std::vector<float> all(10 * 256);
  quant::decode_rows(m.view, 0, 10, all);
  for (std::size_t i = 0; i < 4; ++i) {
    CHECK(same_bits({out.data() + i * 256, 256}, {all.data() + rows[i] * 256, 256}));
  }
  std::vector<std::uint32_t> const past{10};
  CHECK_THROWS_AS(kernel::cpu::decode_rows(m.view, past, out.data()), contract_error);
}

}  // namespace
}  // namespace terrace::test
