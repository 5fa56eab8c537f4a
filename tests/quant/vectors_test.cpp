// SPDX-License-Identifier: Apache-2.0
// Blocks and their float32 values as an independent library wrote them (tests/data): every value
// must come out with the same bits.
#include <terrace/format/byte_source.hpp>
#include <terrace/format/gguf.hpp>
#include <terrace/format/safetensors.hpp>
#include <terrace/quant/decode.hpp>

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <vector>

using namespace terrace;

namespace {

std::filesystem::path const data_folder = std::filesystem::path{TERRACE_SOURCE_DIR} / "tests/data";

std::vector<std::byte> read_range(format::byte_source const& from,
                                  std::uint64_t offset,
                                  std::uint64_t bytes) {
  std::vector<std::byte> out(bytes);
  from.read(offset, out);
  return out;
}

std::size_t mismatches(matrix_view const& w, std::span<std::byte const> expected) {
  REQUIRE(expected.size() == w.rows * w.cols * sizeof(float));
  std::vector<float> row(w.cols);
  std::size_t count = 0;
  for (std::uint64_t i = 0; i < w.rows; ++i) {
    quant::decode_row(w, i, row);
    auto const bytes = std::as_bytes(std::span{row});
    for (std::size_t at = 0; at < bytes.size(); at += sizeof(float)) {
      auto const* const twin = expected.data() + i * bytes.size() + at;
      count += std::equal(twin, twin + sizeof(float), bytes.data() + at) ? 0 : 1;
    }
  }
  return count;
}

/// All tensors of a safetensors file by name.
class packed_vectors {
 public:
  packed_vectors() : source_{data_folder / "packed-vectors.safetensors"} {
    for (auto const& tensor : format::read_safetensors(source_).tensors) {
      bytes_[tensor.name] = read_range(source_, tensor.offset, tensor.bytes);
      shapes_[tensor.name] = tensor.shape;
    }
  }
  std::vector<std::byte> const& operator[](std::string const& name) const {
    return bytes_.at(name);
  }
  /// The matrix behind `X.dequantised`, its elements and scales still to be filled in.
  matrix_view shaped_as(std::string const& name) const {
    auto const& shape = shapes_.at(name);
    return {.rows = shape.at(0), .cols = shape.at(1)};
  }

 private:
  format::file_source source_;
  std::map<std::string, std::vector<std::byte>> bytes_;
  std::map<std::string, std::vector<std::uint64_t>> shapes_;
};

}  // namespace

TEST_CASE("every block type decodes bit for bit as the reference library does", "[quant]") {
  format::file_source const source{data_folder / "quant-vectors.gguf"};
  auto const file = format::read_gguf(source);
  std::map<std::string, format::gguf_tensor> by_name;
  for (auto const& tensor : file.tensors) { by_name[tensor.name] = tensor; }

  std::set<quant_type> seen;
  for (auto const& [name, tensor] : by_name) {
    if (!name.ends_with(".quantised")) { continue; }
    auto const& twin = by_name.at(name.substr(0, name.size() - 9) + "dequantised");
    auto const blocks = read_range(source, tensor.offset, tensor.bytes);
    auto const expected = read_range(source, twin.offset, twin.bytes);
    matrix_view const w{.type = tensor.type,
                        .rows = tensor.dims.at(1),
                        .cols = tensor.dims.at(0),
                        .data = blocks.data()};
    INFO(name);
    CHECK(mismatches(w, expected) == 0);
    seen.insert(tensor.type);
  }
  for (auto const& traits : quant_table) {
    bool const in_gguf = static_cast<std::uint32_t>(traits.type) < 256;
    bool const activations = traits.type == quant_type::q8_1 || traits.type == quant_type::q8_k;
    if (in_gguf && traits.block_elements > 1 && !activations) {
      INFO(traits.name);
      CHECK(seen.contains(traits.type));
    }
  }
}

TEST_CASE("FP8 decodes bit for bit with scales per block, row and tensor", "[quant]") {
  packed_vectors const vectors;
  for (auto const& [name, scales, grid] :
       {std::tuple{"fp8_block", "weight_scale_inv", scale_grid::per_block128},
        std::tuple{"fp8_row", "weight_scale", scale_grid::per_row},
        std::tuple{"fp8_tensor", "weight_scale", scale_grid::per_tensor}}) {
    std::string const prefix = std::string{name} + ".";
    matrix_view w = vectors.shaped_as(prefix + "dequantised");
    w.type = quant_type::fp8_e4m3;
    w.data = vectors[prefix + "weight"].data();
    w.grid = grid;
    w.scales = vectors[prefix + scales].data();
    INFO(name);
    CHECK(mismatches(w, vectors[prefix + "dequantised"]) == 0);
  }
}

TEST_CASE("compressed-tensors INT4 and MXFP4 decode bit for bit", "[quant]") {
  packed_vectors const vectors;
  for (auto const& [name, type, scale_type] :
       {std::tuple{"int4_g32", quant_type::int4_g32, quant_type::bf16},
        std::tuple{"mxfp4", quant_type::mxfp4_packed, quant_type::i8}}) {
    std::string const prefix = std::string{name} + ".";
    matrix_view w = vectors.shaped_as(prefix + "dequantised");
    w.type = type;
    w.data = vectors[prefix + "weight_packed"].data();
    w.grid = scale_grid::per_group32;
    w.scale_type = scale_type;
    w.scales = vectors[prefix + "weight_scale"].data();
    INFO(name);
    CHECK(mismatches(w, vectors[prefix + "dequantised"]) == 0);
  }
}
