// SPDX-License-Identifier: Apache-2.0
#include <terrace/core/error.hpp>
#include <terrace/kernel/cuda/dequantise.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <kernel_cuda/matrices.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace terrace::kernel::cuda {
namespace {

/// All of `w` through the device.
std::vector<float> dequantised(test_device const& device, test::matrix_bytes const& w) {
  test::device_block const block{device, w.bytes};
  device_array<float> const out{w.layout.rows * w.layout.cols};
  dequantise(device.stream(), view_at(w.layout, block.data()), 0, w.layout.rows, out.data());
  return device.download(out);
}

}  // namespace

TEST_CASE("blocks of any bytes at any address decode with the host's bits",
          "[kernel][cuda][sanitize]") {
  test_device device;
  auto const traits = GENERATE(from_range(quant_table));
  auto const offset = GENERATE(range(std::size_t{0}, std::size_t{4}));
  test::generator random{static_cast<unsigned>(traits.type) + 1000};
  CAPTURE(traits.name, offset);
  // Enough blocks for most codebook rows and every scale and code to turn up.
  auto const w = test::random_matrix(
      traits.type, 48, test::fitting_cols(traits.type, 512), random, {}, {}, offset);
  CHECK(test::differences(dequantised(device, w), test::decoded(w.view())) == 0);
}

TEST_CASE("scales outside the elements, and a factor, round as on the host",
          "[kernel][cuda][sanitize]") {
  test_device device;
  auto const type = GENERATE(quant_type::fp8_e4m3,
                             quant_type::int4_g32,
                             quant_type::mxfp4_packed,
                             quant_type::nvfp4,
                             quant_type::q4_k,
                             quant_type::bf16);
  auto const grid = GENERATE(scale_grid::per_tensor,
                             scale_grid::per_row,
                             scale_grid::per_block128,
                             scale_grid::per_group32);
  auto const scale_type =
      GENERATE(quant_type::f32, quant_type::f16, quant_type::bf16, quant_type::i8);
  auto const multiplier = GENERATE(1.0F, 0.3F);
  test::generator random{static_cast<unsigned>(type) + 7};
  CAPTURE(name_of(type), static_cast<int>(grid), name_of(scale_type), multiplier);
  auto w = test::random_matrix(
      type, 130, test::fitting_cols(type, 160), random, {}, {grid, scale_type}, 3);
  w.layout.multiplier = multiplier;
  CHECK(test::differences(dequantised(device, w), test::decoded(w.view())) == 0);
}

TEST_CASE("plain numbers may fill rows of any length", "[kernel][cuda][sanitize]") {
  test_device device;
  auto const type = GENERATE(quant_type::f32,
                             quant_type::f16,
                             quant_type::bf16,
                             quant_type::f64,
                             quant_type::i8,
                             quant_type::i16,
                             quant_type::i32,
                             quant_type::i64,
                             quant_type::fp8_e4m3);
  auto const cols = GENERATE(std::size_t{1}, std::size_t{7}, std::size_t{8}, std::size_t{133});
  test::generator random{static_cast<unsigned>(type) + 70};
  CAPTURE(name_of(type), cols);
  auto const w = test::random_matrix(type, 5, cols, random, {}, {});
  CHECK(test::differences(dequantised(device, w), test::decoded(w.view())) == 0);
}

TEST_CASE("dequantise writes the rows asked for and nothing else", "[kernel][cuda][sanitize]") {
  test_device device;
  test::generator random{31};
  auto const w = test::random_matrix(quant_type::q6_k, 9, 512, random);
  test::device_block const block{device, w.bytes};
  auto const out = device.upload(std::vector<float>(4 * 512, 7.0F));
  dequantise(device.stream(), view_at(w.layout, block.data()), 5, 3, out.data());
  auto expected = test::decoded(w.view());
  expected.erase(expected.begin(), expected.begin() + 5 * 512);
  expected.resize(3 * 512);
  expected.resize(4 * 512, 7.0F);
  CHECK(test::same_bits(device.download(out), expected));
}

TEST_CASE("embed gathers rows in the order of the ids and marks those that are not there",
          "[kernel][cuda][sanitize]") {
  test_device device;
  test::generator random{32};
  auto const w = test::random_matrix(quant_type::q4_k, 10, 256, random);
  test::device_block const block{device, w.bytes};
  std::vector<std::int32_t> const ids{7, 0, 7, 10, -1, 9};
  auto const device_ids = device.upload(ids);
  device_array<float> const out{ids.size() * 256};
  embed(
      device.stream(), view_at(w.layout, block.data()), device_ids.data(), ids.size(), out.data());
  auto const got = device.download(out);
  auto const all = test::decoded(w.view());
  for (std::size_t t = 0; t < ids.size(); ++t) {
    std::vector<float> const row(got.begin() + t * 256, got.begin() + (t + 1) * 256);
    if (ids[t] >= 0 && ids[t] < 10) {
      CHECK(test::same_bits(row, {all.begin() + ids[t] * 256, all.begin() + ids[t] * 256 + 256}));
    } else {
      CHECK(std::all_of(row.begin(), row.end(), [](float v) { return std::isnan(v); }));
    }
  }
}

TEST_CASE("matrices that cannot be decoded are refused", "[kernel][cuda]") {
  test_device device;
  device_array<float> const out{256};
  matrix_view const w{.type = quant_type::q4_k, .rows = 1, .cols = 256};
  auto const call = [&](matrix_view const& bad, std::uint64_t rows) {
    dequantise(device.stream(), bad, 0, rows, out.data());
  };
  CHECK_THROWS_AS(call(w, 2), contract_error);
  matrix_view bad = w;
  bad.cols = 128;
  CHECK_THROWS_AS(call(bad, 1), contract_error);
  bad = w;
  bad.grid = scale_grid::per_row;
  CHECK_THROWS_AS(call(bad, 1), contract_error);
  bad.scales = reinterpret_cast<std::byte const*>(out.data());
  bad.scale_type = quant_type::q8_0;
  CHECK_THROWS_AS(call(bad, 1), not_supported);
  bad = w;
  bad.type = static_cast<quant_type>(4);
  CHECK_THROWS_AS(call(bad, 0), not_supported);
  CHECK_THROWS_AS(dequantise(stream_ref::host(), w, 0, 1, out.data()), contract_error);
}

}  // namespace terrace::kernel::cuda
