// SPDX-License-Identifier: Apache-2.0
#include "quant_check/quant_check.hpp"

#include "support/scratch_folder.hpp"

#include <terrace/core/error.hpp>
#include <terrace/format/gguf_writer.hpp>
#include <terrace/quant/encode.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <span>
#include <vector>

using namespace terrace;
using Catch::Matchers::ContainsSubstring;

namespace {

/// A file with one q8_0 matrix [3, 32] of `values` and a twin; both may be spoilt by a test.
struct pair_file {
  std::vector<float> values = std::vector<float>(96, 0.0F);
  std::vector<std::uint64_t> twin_dims{32, 3};
  quant_type twin_type = quant_type::f32;
  bool with_twin = true;

  void write(std::filesystem::path const& path) {
    std::vector<std::byte> blocks(row_bytes(quant_type::q8_0, 96));
    for (std::size_t i = 0; i < 96; ++i) {
      exact[i] = static_cast<float>(i % 32) - 16 + (i % 32 == 31 ? 112 : 0);
    }
    quant::encode_row(quant_type::q8_0, exact, blocks.data());
    format::gguf_writer writer;
    writer.add_tensor("a.quantised", quant_type::q8_0, {32, 3}, blocks);
    std::vector<float> twin = exact;
    for (std::size_t i = 0; i < 96; ++i) { twin[i] += values[i]; }
    if (with_twin) {
      writer.add_tensor("a.dequantised", twin_type, twin_dims, std::as_bytes(std::span{twin}));
    }
    writer.add_tensor("source", quant_type::f32, {96}, std::as_bytes(std::span{exact}));
    writer.write(path);
  }
  std::vector<float> exact = std::vector<float>(96);
};

quant_check::type_result checked(pair_file file) {
  test::scratch_folder const folder;
  file.write(folder.file("pair.gguf"));
  return quant_check::checker{folder.file("pair.gguf")}.run().at(quant_type::q8_0);
}

}  // namespace

TEST_CASE("quant-check passes a tensor whose twin has its values", "[tools]") {
  auto const result = checked({});
  CHECK(result.passed == 1);
  CHECK(result.values == 96);
  CHECK(result.failures.empty());
}

TEST_CASE("quant-check names the place of the first value that differs", "[tools]") {
  pair_file file;
  file.values[32 + 5] = 1;
  file.values[64 + 1] = 1;
  auto const result = checked(file);
  CHECK(result.passed == 0);
  REQUIRE(result.failures.size() == 1);
  CHECK_THAT(result.failures[0], ContainsSubstring("`a.quantised` row 1 column 5"));
  CHECK_THAT(result.failures[0], ContainsSubstring("values that differ: 2"));
}

TEST_CASE("quant-check fails a tensor without a fitting twin", "[tools]") {
  CHECK_THAT(checked({.with_twin = false}).failures.at(0),
             ContainsSubstring("no `.dequantised` twin"));
  CHECK_THAT(checked({.twin_dims = {96}}).failures.at(0), ContainsSubstring("another shape"));
  CHECK_THAT(checked({.twin_type = quant_type::i32}).failures.at(0), ContainsSubstring("type i32"));
}

TEST_CASE("quant-check refuses a broken file", "[tools]") {
  test::scratch_folder const folder;
  auto const path = folder.file("broken.gguf");
  std::ofstream{path} << "GGUX";
  CHECK_THROWS_AS(quant_check::checker{path}, format_error);
}
