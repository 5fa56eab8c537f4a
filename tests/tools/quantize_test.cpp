// SPDX-License-Identifier: Apache-2.0
#include "quantize/quantize.hpp"

#include "support/scratch_folder.hpp"

#include <terrace/core/error.hpp>
#include <terrace/format/byte_source.hpp>
#include <terrace/format/gguf.hpp>
#include <terrace/format/gguf_writer.hpp>
#include <terrace/quant/decode.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <random>
#include <span>
#include <string>
#include <vector>

using namespace terrace;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;

namespace {

/// A float32 model in miniature.
class small_model {
 public:
  small_model() {
    add("token_embd.weight", {256, 6});
    add("output.weight", {256, 6});
    add("output_norm.weight", {256});
    add("blk.0.attn_q.weight", {256, 4});
    add("blk.0.attn_q_norm.weight", {256, 2});
    add("blk.0.attn_q.bias", {4});
    add("blk.0.ffn_gate_inp.weight", {256, 3});
    add("blk.0.ffn_gate_exps.weight", {256, 32, 3});
    add("blk.0.ffn_down_exps.weight", {32, 256, 3});
    add("blk.0.odd.weight", {20, 3});
  }
  std::vector<float>& operator[](std::string const& name) { return values_.at(name); }

  /// Writes the model, quantises it by `rules` and reads the result's header.
  format::gguf_file through(quantize::type_rules const& rules) {
    format::gguf_writer writer;
    writer.set("general.architecture", std::string{"small"});
    writer.set("general.file_type", std::uint64_t{0});
    writer.set("small.things", std::vector<std::string>{"a", "b"});
    for (auto const& [name, dims] : dims_) {
      writer.add_tensor(name, quant_type::f32, dims, std::as_bytes(std::span{values_.at(name)}));
    }
    writer.write(folder_.file("in.gguf"));
    summary = quantize::quantize(folder_.file("in.gguf"), path(), rules);
    return format::read_gguf(format::file_source{path()});
  }
  [[nodiscard]] std::filesystem::path path() const { return folder_.file("out.gguf"); }

  quantize::summary summary;

 private:
  void add(std::string const& name, std::vector<std::uint64_t> dims) {
    std::uint64_t count = 1;
    for (auto const dim : dims) { count *= dim; }
    std::normal_distribution<float> normal;
    auto& values = values_[name];
    values.resize(count);
    for (auto& value : values) { value = normal(random_); }
    dims_[name] = std::move(dims);
  }

  test::scratch_folder folder_;
  std::mt19937 random_{5};
  std::map<std::string, std::vector<float>> values_;
  std::map<std::string, std::vector<std::uint64_t>> dims_;
};

std::map<std::string, quant_type> types_of(format::gguf_file const& file) {
  std::map<std::string, quant_type> types;
  for (auto const& tensor : file.tensors) { types[tensor.name] = tensor.type; }
  return types;
}

}  // namespace

TEST_CASE("quantize picks types by class, name and row length", "[tools]") {
  small_model model;
  auto const types = types_of(model.through({.dense = quant_type::q4_k,
                                             .experts = quant_type::q2_k,
                                             .vocab = quant_type::q6_k,
                                             .by_name = {{std::regex{"^output"}, quant_type::q8_0}},
                                             .fallback = {quant_type::q4_k, quant_type::mxfp4}}));
  CHECK(types.at("blk.0.attn_q.weight") == quant_type::q4_k);
  CHECK(types.at("blk.0.ffn_gate_exps.weight") == quant_type::q2_k);
  CHECK(types.at("token_embd.weight") == quant_type::q6_k);
  CHECK(types.at("output.weight") == quant_type::q8_0);
  CHECK(types.at("blk.0.ffn_down_exps.weight") == quant_type::mxfp4);
  CHECK(model.summary.fell_back == std::vector<std::string>{"blk.0.ffn_down_exps.weight"});
}

TEST_CASE("quantize copies norms, routers, biases and rows that fit no type", "[tools]") {
  small_model model;
  auto const file = model.through({.dense = quant_type::q4_0});
  format::file_source const source{model.path()};
  for (auto const& tensor : file.tensors) {
    bool const kept = tensor.type == quant_type::f32;
    bool const expected =
        tensor.name.find("norm") != std::string::npos || tensor.name.ends_with("bias") ||
        tensor.name == "blk.0.ffn_gate_inp.weight" || tensor.name == "blk.0.odd.weight";
    INFO(tensor.name);
    CHECK(kept == expected);
    if (!kept) { continue; }
    std::vector<float> values(tensor.bytes / sizeof(float));
    source.read(tensor.offset, std::as_writable_bytes(std::span{values}));
    CHECK(values == model[tensor.name]);
  }
}

TEST_CASE("quantize writes the values an encoder makes of each row", "[tools]") {
  small_model model;
  auto const file = model.through({.dense = quant_type::q8_0});
  format::file_source const source{model.path()};
  for (auto const& tensor : file.tensors) {
    if (tensor.type != quant_type::q8_0) { continue; }
    std::vector<std::byte> blocks(tensor.bytes);
    source.read(tensor.offset, blocks);
    auto const& x = model[tensor.name];
    std::vector<std::byte> expected(tensor.bytes);
    quant::encode_row(quant_type::q8_0, x, expected.data());
    INFO(tensor.name);
    CHECK(blocks == expected);
  }
}

TEST_CASE("quantize copies metadata and states the new file type", "[tools]") {
  small_model model;
  auto const known = model.through({.dense = quant_type::q4_k});
  CHECK(known.meta.get_string("general.architecture") == "small");
  REQUIRE(known.meta.try_strings("small.things") != nullptr);
  CHECK(*known.meta.try_strings("small.things") == std::vector<std::string>{"a", "b"});
  CHECK(known.meta.get_unsigned("general.file_type") == 14);
  auto const unnumbered = model.through({.dense = quant_type::q1_0});
  CHECK_FALSE(unnumbered.meta.contains("general.file_type"));
}

TEST_CASE("quantize refuses values that are not finite, naming the tensor", "[tools]") {
  small_model model;
  model["blk.0.attn_q.weight"][300] = std::nanf("");
  CHECK_THROWS_MATCHES(
      model.through({.dense = quant_type::q4_k}),
      format_error,
      MessageMatches(ContainsSubstring("`blk.0.attn_q.weight`") && ContainsSubstring("value 300")));
  CHECK_FALSE(std::filesystem::exists(model.path()));
}
