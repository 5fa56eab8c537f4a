// SPDX-License-Identifier: Apache-2.0
#include <terrace/core/error.hpp>
#include <terrace/quant/decode.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <span>
#include <tuple>
#include <vector>

using namespace terrace;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;

namespace {

template <class T>
std::byte const* bytes_of(T const& object) {
  return reinterpret_cast<std::byte const*>(&object);
}

template <quant::block_format Format>
std::vector<float> decoded(Format const& block) {
  std::vector<float> y(Format::elements);
  quant::decode_blocks(Format::type, bytes_of(block), Format::elements, y.data());
  return y;
}

bool same_bits(float a, float b) {
  return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
}

}  // namespace

TEST_CASE("an MXFP4 block keeps its values at the ends of the exponent range", "[quant]") {
  static constexpr float levels[16] = {
      0, .5F, 1, 1.5F, 2, 3, 4, 6, 0, -.5F, -1, -1.5F, -2, -3, -4, -6};
  for (int const e : {0, 1, 2, 127, 253, 254, 255}) {
    quant::mxfp4 block{.e = static_cast<std::uint8_t>(e), .qs = {}};
    for (unsigned j = 0; j < 16; ++j) {
      block.qs[j] = static_cast<std::uint8_t>(j | (15U - j) << 4U);
    }
    auto const y = decoded(block);
    for (unsigned j = 0; j < 16; ++j) {
      INFO("exponent " << e << ", code " << j);
      auto const expected = static_cast<float>(std::ldexp(double{levels[j]}, e - 127));
      CHECK(same_bits(y[j], expected));
      CHECK(same_bits(y[31 - j], expected));
    }
  }
}

TEST_CASE("packed MXFP4 holds the numbers of a GGUF block at every exponent", "[quant]") {
  quant::mxfp4 block{};
  quant::mxfp4_packed packed{};
  for (unsigned j = 0; j < 32; ++j) {  // element j gets code j % 16
    std::uint8_t& in_block = block.qs[j % 16];
    in_block = static_cast<std::uint8_t>(in_block | (j % 16) << (j < 16 ? 0U : 4U));
    std::uint8_t& in_packed = packed.qs[j / 2];
    in_packed = static_cast<std::uint8_t>(in_packed | (j % 16) << (4U * (j % 2)));
  }
  for (unsigned e = 0; e < 256; ++e) {
    auto const scale = static_cast<std::uint8_t>(e);
    block.e = scale;
    auto const expected = decoded(block);
    std::vector<float> y(32);
    quant::decode_row({.type = quant_type::mxfp4_packed,
                       .rows = 1,
                       .cols = 32,
                       .data = bytes_of(packed),
                       .grid = scale_grid::per_group32,
                       .scale_type = quant_type::i8,
                       .scales = bytes_of(scale)},
                      0,
                      y);
    INFO("exponent " << e);
    for (std::size_t j = 0; j < 32; ++j) { CHECK(y[j] == expected[j]); }
  }
}

TEST_CASE("subnormal half-precision scales scale", "[quant]") {
  quant::q8_0 block{.d = {quant::le_u16::of(0x0001)}, .qs = {}};  // 2^-24
  for (int j = 0; j < 32; ++j) { block.qs[j] = static_cast<std::int8_t>(8 * j - 128); }
  auto const y = decoded(block);
  for (int j = 0; j < 32; ++j) { CHECK(y[j] == std::ldexp(static_cast<float>(8 * j - 128), -24)); }

  quant::q6_k wide{.ql = {}, .qh = {}, .scales = {}, .d = {quant::le_u16::of(0x8001)}};  // -2^-24
  wide.scales[0] = -128;
  CHECK(decoded(wide)[0] == -4096 * std::ldexp(1.0F, -24));  // code 0 is -32
}

TEST_CASE("activation blocks decode to scale times code", "[quant]") {
  quant::q8_1 small{.d = quant::le_f16::of(0.25F), .s = quant::le_f16::of(99), .qs = {}};
  small.qs[5] = -7;
  CHECK(decoded(small)[5] == -1.75F);

  float const scale = 0.1F;
  quant::q8_k wide{};
  std::memcpy(&wide.d, &scale, sizeof scale);
  wide.qs[255] = 127;
  CHECK(decoded(wide)[255] == 127 * scale);
}

TEST_CASE("plain numbers decode rounded once to float32", "[quant]") {
  float y = 0;
  double const third = 1.0 / 3;
  quant::decode_blocks(quant_type::f64, bytes_of(third), 1, &y);
  CHECK(y == static_cast<float>(third));
  auto const large = std::numeric_limits<std::int64_t>::min() + 1;
  quant::decode_blocks(quant_type::i64, bytes_of(large), 1, &y);
  CHECK(y == -0x1.0p63F);
  std::int16_t const small = -300;
  quant::decode_blocks(quant_type::i16, bytes_of(small), 1, &y);
  CHECK(y == -300.0F);
}

TEST_CASE("decoding reads blocks at any address", "[quant]") {
  std::mt19937 random{7};
  for (auto const& traits : quant_table) {
    std::vector<std::byte> bytes(traits.block_bytes * 2 + 1);
    for (auto& byte : bytes) { byte = static_cast<std::byte>(random()); }
    std::uint64_t const elements = traits.block_elements * 2;
    std::vector<float> aligned(elements);
    std::vector<float> shifted(elements);
    quant::decode_blocks(traits.type, bytes.data(), elements, aligned.data());
    std::memmove(bytes.data() + 1, bytes.data(), bytes.size() - 1);
    quant::decode_blocks(traits.type, bytes.data() + 1, elements, shifted.data());
    INFO(traits.name);
    CHECK(std::memcmp(aligned.data(), shifted.data(), elements * sizeof(float)) == 0);
  }
}

TEST_CASE("128 x 128 scales apply to rows and columns of ragged blocks", "[quant]") {
  std::vector<std::uint8_t> const codes(130 * 200, 0x38);  // 1.0
  std::vector<float> const scales{2, 3, 5, 7};
  matrix_view const w{.type = quant_type::fp8_e4m3,
                      .rows = 130,
                      .cols = 200,
                      .data = bytes_of(codes[0]),
                      .grid = scale_grid::per_block128,
                      .scale_type = quant_type::f32,
                      .scales = bytes_of(scales[0])};
  std::vector<float> row(200);
  for (auto const& [index, left, right] :
       {std::tuple{0U, 2.0F, 3.0F}, {127U, 2.0F, 3.0F}, {128U, 5.0F, 7.0F}}) {
    quant::decode_row(w, index, row);
    INFO("row " << index);
    CHECK(row[0] == left);
    CHECK(row[127] == left);
    CHECK(row[128] == right);
    CHECK(row[199] == right);
  }
}

TEST_CASE("scales may be bfloat16, half precision or float32", "[quant]") {
  std::uint8_t const code = 0x40;  // 2.0
  matrix_view w{.type = quant_type::fp8_e4m3,
                .rows = 1,
                .cols = 1,
                .data = bytes_of(code),
                .grid = scale_grid::per_tensor};
  float y = 0;
  auto const with_scale = [&](quant_type type, auto scale) {
    w.scale_type = type;
    w.scales = bytes_of(scale);
    quant::decode_row(w, 0, {&y, 1});
    return y;
  };
  CHECK(with_scale(quant_type::f32, 0.1F) == 0.2F);
  CHECK(with_scale(quant_type::bf16, std::uint16_t{0x3F00}) == 1.0F);
  CHECK(with_scale(quant_type::f16, std::uint16_t{0x3800}) == 1.0F);
  CHECK_THROWS_AS(with_scale(quant_type::i32, std::int32_t{1}), not_supported);
}

TEST_CASE("a multiplier scales every value", "[quant]") {
  quant::nvfp4 block{.scales = {0x38, 0x38, 0x38, 0x38}, .qs = {}};  // 1.0
  block.qs[0] = 0x25;                                                // 3, then 1 eight elements on
  std::vector<float> y(64);
  matrix_view const w{.type = quant_type::nvfp4,
                      .rows = 1,
                      .cols = 64,
                      .data = bytes_of(block),
                      .multiplier = 0.3F};
  quant::decode_row(w, 0, y);
  CHECK(y[0] == 3 * 0.3F);
  CHECK(y[8] == 0.3F);
}

TEST_CASE("a row decodes the same alone and among others", "[quant]") {
  std::mt19937 random{11};
  std::vector<quant::q4_k> blocks(2 * 5);
  std::vector<std::byte> bytes(blocks.size() * sizeof(quant::q4_k));
  for (auto& byte : bytes) { byte = static_cast<std::byte>(random() & 0x3FU); }  // finite scales
  matrix_view const w{.type = quant_type::q4_k, .rows = 5, .cols = 512, .data = bytes.data()};
  std::vector<float> all(3 * 512);
  std::vector<float> one(512);
  quant::decode_rows(w, 1, 3, all);
  for (std::uint64_t row = 1; row < 4; ++row) {
    quant::decode_row(w, row, one);
    CHECK(std::memcmp(one.data(), all.data() + (row - 1) * 512, 512 * sizeof(float)) == 0);
  }
}

TEST_CASE("decoding refuses rows, lengths and types that do not fit", "[quant]") {
  std::vector<std::byte> const bytes(1024);
  std::vector<float> y(64);
  matrix_view w{.type = quant_type::q8_0, .rows = 2, .cols = 64, .data = bytes.data()};
  CHECK_THROWS_AS(quant::decode_row(w, 2, y), contract_error);
  CHECK_THROWS_AS(quant::decode_rows(w, 1, ~std::uint64_t{0}, y), contract_error);
  CHECK_THROWS_AS(quant::decode_row(w, 0, std::span{y}.first(63)), contract_error);
  w.grid = scale_grid::per_row;
  CHECK_THROWS_AS(quant::decode_row(w, 0, y), contract_error);
  w = {.type = quant_type::q4_k, .rows = 1, .cols = 64, .data = bytes.data()};
  CHECK_THROWS_MATCHES(quant::decode_row(w, 0, y),
                       contract_error,
                       MessageMatches(ContainsSubstring("q4_k blocks of 256")));
  CHECK_THROWS_MATCHES(quant::decode_blocks(quant_type{31}, bytes.data(), 32, y.data()),
                       not_supported,
                       MessageMatches(ContainsSubstring("type 31")));
}
