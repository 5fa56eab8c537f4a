// SPDX-License-Identifier: Apache-2.0
#include <terrace/core/error.hpp>
#include <terrace/core/head_product.hpp>
#include <terrace/kernel/cuda/activations.hpp>
#include <terrace/kernel/cuda/head_products.hpp>
#include <terrace/kernel/cuda/matmul.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <kernel_cuda/matrices.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

namespace terrace::kernel::cuda {
namespace {

std::vector<float> product(test_device const& device,
                           test::matrix_bytes const& w,
                           std::vector<float> const& x,
                           std::size_t tokens,
                           numerics mode = numerics::exact) {
  test::device_block const block{device, w.bytes};
  auto const there = device.upload(x);
  device_array<float> const y{tokens * w.layout.rows};
  device_array<std::byte> const prepared{prepared_bytes(mode, tokens, w.layout.cols) + 16};
  auto const input =
      prepare(device.stream(), mode, there.data(), tokens, w.layout.cols, prepared.data());
  matmul(device.stream(), view_at(w.layout, block.data()), input, y.data());
  return device.download(y);
}

/// Products off by more than float32 sums of that many terms in any order may be.
std::size_t wrong(std::vector<float> const& y,
                  std::vector<float> const& w,
                  std::vector<float> const& x,
                  std::size_t rows,
                  std::size_t cols) {
  std::size_t count = 0;
  for (std::size_t i = 0; i < y.size(); ++i) {
    float const* const row = w.data() + i % rows * cols;
    float const* const vector = x.data() + i / rows * cols;
    double sum = 0, magnitude = 0;
    for (std::size_t c = 0; c < cols; ++c) {
      double const term = static_cast<double>(row[c]) * vector[c];
      sum += term;
      magnitude += std::abs(term);
    }
    double const bound = magnitude * (static_cast<double>(cols) + 1) * 0x1p-24;
    count += std::abs(y[i] - sum) <= bound ? 0 : 1;
  }
  return count;
}

/// Products off by more than rounding the inputs may make them: to codes of a 127th of the largest
/// of 32, or to bfloat16.
std::size_t wrong_fast(std::vector<float> const& y,
                       std::vector<float> const& w,
                       std::vector<float> const& x,
                       std::size_t rows,
                       std::size_t cols) {
  std::size_t count = 0;
  bool const coded = x.size() / cols <= most_coded_tokens;
  for (std::size_t i = 0; i < y.size(); ++i) {
    float const* const row = w.data() + i % rows * cols;
    float const* const vector = x.data() + i / rows * cols;
    double sum = 0, bound = 0, magnitude = 0;
    double const largest_weight = std::abs(*std::max_element(
        row, row + cols, [](float a, float b) { return std::abs(a) < std::abs(b); }));
    for (std::size_t c = 0; c < cols; ++c) {
      std::size_t const group = c / code_columns * code_columns;
      double largest = 0;
      for (std::size_t j = group; j < std::min(cols, group + code_columns); ++j) {
        largest = std::max(largest, static_cast<double>(std::abs(vector[j])));
      }
      sum += static_cast<double>(row[c]) * vector[c];
      double const rounding = coded ? largest / 254 : std::abs(vector[c]) * 0x1p-8;
      bound += std::abs(row[c]) * rounding;
      magnitude += largest_weight * std::abs(vector[c]);
    }
    // Beside the rounding of inputs, that of weights to bfloat16 where inputs are, and float32
    // sums.
    bound += magnitude * (coded ? 0x1p-17 : 0x1p-8);
    count += std::abs(y[i] - sum) <= bound ? 0 : 1;
  }
  return count;
}

}  // namespace

TEST_CASE("fast products of every type agree with double sums as rounded inputs allow",
          "[kernel][cuda][sanitize]") {
  test_device device;
  auto const traits = GENERATE(from_range(quant_table));
  test::generator random{static_cast<unsigned>(traits.type) + 7};
  CAPTURE(traits.name);
  std::size_t const cols = test::fitting_cols(traits.type, 2336);
  constexpr std::size_t rows = 19;
  auto const w = test::random_matrix(traits.type, rows, cols, random);
  auto const values = test::decoded(w.view());
  for (std::size_t const tokens : {1U, 2U, 3U, 8U, 9U}) {
    auto const x = test::random_floats(random, tokens * cols);
    CAPTURE(tokens);
    CHECK(wrong_fast(product(device, w, x, tokens, numerics::fast), values, x, rows, cols) == 0);
  }
}

TEST_CASE("fast products of many tokens and rows cover every tile", "[kernel][cuda]") {
  test_device device;
  test::generator random{8};
  auto const type =
      GENERATE(quant_type::q4_k, quant_type::mxfp4, quant_type::mxfp4_packed, quant_type::bf16);
  std::size_t const cols = test::fitting_cols(type, 180);
  std::size_t const tokens = GENERATE(64U, 131U);
  constexpr std::size_t rows = 259;
  auto const w = test::random_matrix(type, rows, cols, random);
  auto const x = test::random_floats(random, tokens * cols);
  CHECK(
      wrong_fast(
          product(device, w, x, tokens, numerics::fast), test::decoded(w.view()), x, rows, cols) ==
      0);
}

TEST_CASE("a token's fast products have the same bits alone and among up to eight",
          "[kernel][cuda]") {
  test_device device;
  test::generator random{6};
  constexpr std::size_t rows = 37, tokens = 8;
  auto const type = GENERATE(quant_type::q4_k,
                             quant_type::mxfp4,
                             quant_type::mxfp4_packed,
                             quant_type::q6_k,
                             quant_type::iq2_xxs,
                             quant_type::iq1_s);
  std::size_t const cols = test::fitting_cols(type, 1152);
  auto const w = test::random_matrix(type, rows, cols, random);
  auto const x = test::random_floats(random, tokens * cols);
  auto const all = product(device, w, x, tokens, numerics::fast);
  for (std::size_t const t : {std::size_t{0}, std::size_t{7}}) {
    std::vector<float> const one(x.begin() + static_cast<std::ptrdiff_t>(t * cols),
                                 x.begin() + static_cast<std::ptrdiff_t>((t + 1) * cols));
    std::vector<float> const here(all.begin() + static_cast<std::ptrdiff_t>(t * rows),
                                  all.begin() + static_cast<std::ptrdiff_t>((t + 1) * rows));
    CHECK(test::differences(product(device, w, one, 1, numerics::fast), here) == 0);
  }
}

TEST_CASE("products of every type agree with double sums within the bound of float32",
          "[kernel][cuda][sanitize]") {
  test_device device;
  auto const traits = GENERATE(from_range(quant_table));
  test::generator random{static_cast<unsigned>(traits.type) + 3};
  CAPTURE(traits.name);
  std::size_t const cols = test::fitting_cols(traits.type, 300);
  constexpr std::size_t rows = 21;
  auto const w = test::random_matrix(traits.type, rows, cols, random);
  auto const values = test::decoded(w.view());
  for (std::size_t const tokens : {1U, 3U, 9U}) {
    auto const x = test::random_floats(random, tokens * cols);
    CHECK(wrong(product(device, w, x, tokens), values, x, rows, cols) == 0);
  }
}

TEST_CASE("a token's products have the same bits alone and among others", "[kernel][cuda]") {
  test_device device;
  test::generator random{5};
  constexpr std::size_t rows = 40, tokens = 65;
  auto const type = GENERATE(quant_type::q4_k, quant_type::mxfp4, quant_type::f32);
  std::size_t const cols = test::fitting_cols(type, 288);
  auto const w = test::random_matrix(type, rows, cols, random);
  auto const x = test::random_floats(random, tokens * cols);
  auto const all = product(device, w, x, tokens);
  for (std::size_t const t : {std::size_t{0}, std::size_t{7}, std::size_t{64}}) {
    std::vector<float> const one(x.begin() + static_cast<std::ptrdiff_t>(t * cols),
                                 x.begin() + static_cast<std::ptrdiff_t>((t + 1) * cols));
    std::vector<float> const here(all.begin() + static_cast<std::ptrdiff_t>(t * rows),
                                  all.begin() + static_cast<std::ptrdiff_t>((t + 1) * rows));
    CHECK(test::differences(product(device, w, one, 1), here) == 0);
  }
}

TEST_CASE("products of a head use its rows, plain or transposed", "[kernel][cuda][sanitize]") {
  test_device device;
  test::generator random{11};
  bool const transposed = GENERATE(false, true);
  auto const type = GENERATE(quant_type::q8_0, quant_type::bf16);
  constexpr std::size_t heads = 3, tokens = 6, cols = 96, rows = 40, first = 2, stride = 44;
  auto const w = test::random_matrix(type, first + heads * stride, cols, random);
  auto const values = test::decoded(w.view());
  std::size_t const wide = transposed ? rows : cols;
  std::size_t const out = transposed ? cols : rows;
  auto const x = test::random_floats(random, tokens * heads * wide);
  test::device_block const block{device, w.bytes};
  auto const in = device.upload(x);
  device_array<float> const y{tokens * heads * out};
  head_products(device.stream(),
                {.factors = view_at(w.layout, block.data()),
                 .heads = heads,
                 .first_row = first,
                 .row_stride = stride,
                 .rows = rows,
                 .transposed = transposed,
                 .in = in.data(),
                 .in_token_stride = heads * wide,
                 .in_head_stride = wide,
                 .out = y.data(),
                 .out_token_stride = heads * out,
                 .out_head_stride = out},
                tokens);
  auto const got = device.download(y);
  std::size_t bad = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    std::size_t const head = i / out % heads;
    std::size_t const t = i / out / heads;
    double sum = 0, magnitude = 0;
    for (std::size_t j = 0; j < wide; ++j) {
      std::size_t const row = first + head * stride + (transposed ? j : i % out);
      std::size_t const col = transposed ? i % out : j;
      double const term =
          static_cast<double>(values[row * cols + col]) * x[(t * heads + head) * wide + j];
      sum += term;
      magnitude += std::abs(term);
    }
    bad += std::abs(got[i] - sum) <= magnitude * static_cast<double>(wide + 1) * 0x1p-24 ? 0 : 1;
  }
  CHECK(bad == 0);
}

TEST_CASE("a product of vectors of another width is refused", "[kernel][cuda]") {
  test_device device;
  test::generator random{2};
  auto const w = test::random_matrix(quant_type::f32, 4, 64, random);
  CHECK_THROWS_AS(
      [&] {
        device_array<float> const y{4};
        matmul(device.stream(), w.view(), {.tokens = 1, .cols = 32}, y.data());
      }(),
      contract_error);
}

}  // namespace terrace::kernel::cuda
