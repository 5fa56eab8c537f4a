// SPDX-License-Identifier: Apache-2.0
#include "format/support.hpp"

#include <terrace/core/units.hpp>
#include <terrace/format/catalog.hpp>
#include <terrace/format/gguf_writer.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <algorithm>
#include <cstdint>
#include <map>
#include <random>
#include <span>
#include <string>
#include <vector>

using Catch::Matchers::ContainsSubstring;
using format_test::raw;
using format_test::refusal;
using format_test::safetensors_maker;
using format_test::temporary_folder;
using format_test::write_file;
using terrace::block_id;
using terrace::block_info;
using terrace::expert_block;
using terrace::expert_id;
using terrace::layer_id;
using terrace::matrix_layout;
using terrace::quant_type;
using terrace::scale_grid;
using terrace::format::catalog;
using terrace::format::gguf_writer;

namespace {

using bytes = std::vector<std::byte>;

bytes random_bytes(std::size_t count, unsigned seed) {
  std::mt19937 random{seed};
  bytes out(count);
  for (auto& b : out) { b = static_cast<std::byte>(random()); }
  return out;
}
std::string text_of(bytes const& data) {
  return {reinterpret_cast<char const*>(data.data()), data.size()};
}

/// The memory of a block as a tier would hold it.
bytes load(catalog const& model, block_info const& block) {
  bytes memory(block.bytes, std::byte{0xEE});
  for (auto const& piece : block.extents) {
    REQUIRE(piece.to_offset + piece.from.bytes <= block.bytes);
    terrace::format::file_source const file{
        model.files()[static_cast<std::size_t>(piece.from.file)]};
    file.read(piece.from.offset, std::span{memory}.subspan(piece.to_offset, piece.from.bytes));
  }
  return memory;
}
bytes matrix_data(bytes const& block, matrix_layout const& matrix) {
  auto const at = block.begin() + static_cast<std::ptrdiff_t>(matrix.data_offset);
  return {at, at + static_cast<std::ptrdiff_t>(matrix.data_bytes())};
}
bytes tensor_data(catalog const& model, std::string const& name) {
  auto const& place = model.get(name);
  return matrix_data(load(model, *model.find_block(place.block)), place.layout);
}

/// Facts that hold for every block of every model.
void check_blocks(catalog const& model) {
  for (block_info const& block : model.blocks()) {
    CAPTURE(to_string(block.id), block.names.front());
    CHECK(model.find_block(block.id) == &block);
    CHECK(block.names.size() == block.matrices.size());
    CHECK(block.bytes % 64 == 0);
    std::uint64_t end = 0;
    for (auto const& piece : block.extents) {
      CHECK(piece.to_offset >= end);
      if (piece.from.bytes >= 64 * terrace::kib) {
        CHECK(piece.to_offset % 4096 == piece.from.offset % 4096);
        CHECK(piece.to_offset - end < 4096);
      } else {
        CHECK(piece.to_offset % 64 == 0);
      }
      end = piece.to_offset + piece.from.bytes;
    }
    CHECK(terrace::round_up(end, 64) == block.bytes);
  }
}

struct expert_stack {
  std::string name;
  quant_type type;
  std::uint64_t cols, rows;
};
/// A GGUF of one layer with 3 experts whose stacks are as given.
class mixture {
 public:
  explicit mixture(std::vector<expert_stack> const& stacks, std::uint64_t experts = 3) {
    writer_.set("general.architecture", std::string{"toy"});
    for (auto const& stack : stacks) {
      auto const count = terrace::row_bytes(stack.type, stack.cols) * stack.rows * experts;
      auto const& data = data_[stack.name] =
          random_bytes(count, static_cast<unsigned>(data_.size() + 1));
      writer_.add_tensor(stack.name, stack.type, {stack.cols, stack.rows, experts}, data);
    }
  }
  [[nodiscard]] catalog open() const {
    writer_.write(folder_ / "m.gguf");
    return catalog::open(folder_ / "m.gguf");
  }
  [[nodiscard]] bytes part(std::string const& name, std::size_t number, std::size_t parts) const {
    auto const& all = data_.at(name);
    auto const size = static_cast<std::ptrdiff_t>(all.size() / parts);
    auto const at = all.begin() + static_cast<std::ptrdiff_t>(number) * size;
    return {at, at + size};
  }
  gguf_writer writer_;

 private:
  temporary_folder folder_;
  std::map<std::string, bytes> data_;
};

}  // namespace

TEST_CASE("a dense tensor is one block under its GGUF name", "[format]") {
  temporary_folder const folder;
  gguf_writer writer;
  auto const embedding = random_bytes(34 * 2 * 700, 1), norm = random_bytes(256, 2);
  writer.add_tensor("token_embd.weight", quant_type::q8_0, {64, 700}, embedding);
  writer.add_tensor("blk.3.attn_norm.weight", quant_type::f32, {64}, norm);
  writer.write(folder / "m.gguf");
  auto const model = catalog::open(folder / "m.gguf");
  check_blocks(model);
  REQUIRE(model.blocks().size() == 2);
  auto const& place = model.get("token_embd.weight");
  CHECK(place.layout.rows == 700);
  CHECK(place.layout.cols == 64);
  CHECK(terrace::layer_of(place.block) == terrace::no_layer);
  CHECK(terrace::layer_of(model.get("blk.3.attn_norm.weight").block) == layer_id{3});
  CHECK(model.get("blk.3.attn_norm.weight").layout.rows == 1);
  CHECK(tensor_data(model, "token_embd.weight") == embedding);
  CHECK(tensor_data(model, "blk.3.attn_norm.weight") == norm);
  CHECK(model.find("output.weight") == nullptr);
  CHECK_THAT(refusal([&] { (void)model.get("output.weight"); }),
             ContainsSubstring("`output.weight` is missing"));
}

TEST_CASE("an expert is three slabs, of mixed types, in the order gate, up, down", "[format]") {
  mixture const files{{{"blk.1.ffn_down_exps.weight", quant_type::q6_k, 256, 64},
                       {"blk.1.ffn_gate_exps.weight", quant_type::q8_0, 64, 256},
                       {"blk.1.ffn_up_exps.weight", quant_type::f16, 64, 256}}};
  auto const model = files.open();
  check_blocks(model);
  REQUIRE(model.expert_layers() == std::vector{layer_id{1}});
  CHECK(model.experts_of(layer_id{1}) == 3);
  CHECK(model.experts_of(layer_id{0}) == 0);
  for (std::uint32_t expert = 0; expert < 3; ++expert) {
    auto const* block = model.find_block(expert_block(layer_id{1}, expert_id{expert}));
    REQUIRE(block != nullptr);
    REQUIRE(block->matrices.size() == 3);
    auto const memory = load(model, *block);
    CHECK(block->names[2] == "blk.1.ffn_down_exps.weight");
    CHECK(matrix_data(memory, block->matrices[0]) ==
          files.part("blk.1.ffn_gate_exps.weight", expert, 3));
    CHECK(matrix_data(memory, block->matrices[1]) ==
          files.part("blk.1.ffn_up_exps.weight", expert, 3));
    CHECK(matrix_data(memory, block->matrices[2]) ==
          files.part("blk.1.ffn_down_exps.weight", expert, 3));
  }
}

TEST_CASE("a fused gate and up stack is cut into gate, then up", "[format]") {
  mixture const files{{{"blk.0.ffn_gate_up_exps.weight", quant_type::f16, 64, 2 * 32},
                       {"blk.0.ffn_down_exps.weight", quant_type::f16, 32, 64}}};
  auto const model = files.open();
  check_blocks(model);
  auto const& block = *model.find_block(expert_block(layer_id{0}, expert_id{2}));
  auto const memory = load(model, block);
  CHECK(block.extents.size() == 2);
  CHECK(matrix_data(memory, block.matrices[0]) ==
        files.part("blk.0.ffn_gate_up_exps.weight", 4, 6));
  CHECK(matrix_data(memory, block.matrices[1]) ==
        files.part("blk.0.ffn_gate_up_exps.weight", 5, 6));
}

TEST_CASE("expert stacks that do not fit together are refused", "[format]") {
  expert_stack const gate{"blk.0.ffn_gate_exps.weight", quant_type::f16, 64, 32};
  expert_stack const up{"blk.0.ffn_up_exps.weight", quant_type::f16, 64, 32};
  expert_stack const down{"blk.0.ffn_down_exps.weight", quant_type::f16, 32, 64};
  auto const refused = [](mixture const& files) { return refusal([&] { (void)files.open(); }); };
  CHECK_THAT(refused(mixture{{gate, up}}),
             ContainsSubstring("`blk.0.ffn_down_exps.weight` is missing"));
  CHECK_THAT(refused(mixture{{up, down}}),
             ContainsSubstring("`blk.0.ffn_gate_exps.weight` is missing"));
  auto narrow = up;
  narrow.rows = 31;
  CHECK_THAT(refused(mixture{{gate, narrow, down}}),
             ContainsSubstring("`blk.0.ffn_up_exps.weight` has shape 64 x 31 x 3"));
  auto fused = gate;
  fused.name = "blk.0.ffn_gate_up_exps.weight";
  fused.rows = 64;
  CHECK_THAT(refused(mixture{{fused, gate, down}}),
             ContainsSubstring("beside separate gate or up experts"));

  mixture flat{{gate, up}};
  bytes const data(4096);
  flat.writer_.add_tensor("blk.0.ffn_down_exps.weight", quant_type::f16, {32, 64}, data);
  CHECK_THAT(refused(flat), ContainsSubstring("has 2 dimensions; a stack of experts has 3"));

  mixture wrong_count{{gate, up, down}};
  wrong_count.writer_.set("toy.expert_count", std::uint64_t{4});
  CHECK_THAT(refused(wrong_count),
             ContainsSubstring("layer 0 has 3 experts where the metadata says 4"));

  mixture bare{{gate, up, down}};
  bytes const router(64 * 3 * 4);
  bare.writer_.add_tensor("blk.7.ffn_gate_inp.weight", quant_type::f32, {64, 3}, router);
  CHECK_THAT(refused(bare), ContainsSubstring("layer 7 has a router but no experts"));
}

TEST_CASE("more experts than any model has are refused before they cost memory", "[format]") {
  temporary_folder const folder;
  // A sparse file: a header that claims 2^32 experts of one byte each, and as much nothing.
  format_test::raw_gguf file;
  std::uint64_t const experts = std::uint64_t{1} << 32U;
  std::uint64_t offset = 0;
  for (char const* const role : {"gate", "up", "down"}) {
    file.tensors.push_back(
        {"blk.0.ffn_" + std::string{role} + "_exps.weight", {1, 1, experts}, 24, offset});
    offset += experts;
  }
  write_file(folder / "m.gguf", file.bytes());
  std::filesystem::resize_file(folder / "m.gguf", file.bytes().size() + offset);
  CHECK_THAT(refusal([&] { (void)catalog::open(folder / "m.gguf"); }),
             ContainsSubstring("more than 1048576 experts"));
}

TEST_CASE("nvfp4 tensors carry the float that scales them", "[format]") {
  std::string const spelling = GENERATE(".scale", ".weight.scale");
  temporary_folder const folder;
  gguf_writer writer;
  bytes const data(36 * 8);
  auto const half = raw(0.5F);
  auto const each = raw(1.0F) + raw(2.0F);
  writer.add_tensor("blk.0.attn_q.weight", quant_type::nvfp4, {64, 8}, data);
  writer.add_tensor(
      "blk.0.attn_q" + spelling, quant_type::f32, {1}, std::as_bytes(std::span{half}));
  for (std::string const role : {"gate", "up", "down"}) {
    writer.add_tensor(
        "blk.0.ffn_" + role + "_exps.weight", quant_type::nvfp4, {64, 64, 2}, [](auto const& sink) {
          sink(bytes(36 * 64 * 2));
        });
    writer.add_tensor("blk.0.ffn_" + role + "_exps" + spelling,
                      quant_type::f32,
                      {2},
                      std::as_bytes(std::span{each}));
  }
  writer.write(folder / "m.gguf");
  auto const model = catalog::open(folder / "m.gguf");
  CHECK(model.get("blk.0.attn_q.weight").layout.multiplier == 0.5F);
  CHECK(model.find_block(expert_block(layer_id{0}, expert_id{1}))->matrices[2].multiplier == 2.0F);
  CHECK(model.find("blk.0.attn_q" + spelling) == nullptr);
}

TEST_CASE("an nvfp4 scale that is no number is refused", "[format]") {
  temporary_folder const folder;
  gguf_writer writer;
  bytes const data(36);
  auto const nan = raw(std::numeric_limits<float>::quiet_NaN());
  writer.add_tensor("a.weight", quant_type::nvfp4, {64}, data);
  writer.add_tensor("a.scale", quant_type::f32, {1}, std::as_bytes(std::span{nan}));
  writer.write(folder / "m.gguf");
  CHECK_THAT(refusal([&] { (void)catalog::open(folder / "m.gguf"); }),
             ContainsSubstring("not a finite number"));
}

TEST_CASE("safetensors names become GGUF names", "[format]") {
  std::string const prefix = GENERATE("", "language_model.");
  std::string const moe = GENERATE("mlp", "block_sparse_moe");
  safetensors_maker maker;
  auto const add = [&](std::string const& name) { maker.add(prefix + name, "F32", {2, 2}, 4); };
  std::map<std::string, std::string> const names{
      {"model.embed_tokens.weight", "token_embd.weight"},
      {"model.norm.weight", "output_norm.weight"},
      {"lm_head.weight", "output.weight"},
      {"model.layers.3.input_layernorm.weight", "blk.3.attn_norm.weight"},
      {"model.layers.3.post_attention_layernorm.weight", "blk.3.ffn_norm.weight"},
      {"model.layers.3.self_attn.q_proj.weight", "blk.3.attn_q.weight"},
      {"model.layers.3.self_attn.o_proj.weight", "blk.3.attn_output.weight"},
      {"model.layers.3.self_attn.q_norm.weight", "blk.3.attn_q_norm.weight"},
      {"model.layers.3.self_attn.kv_a_proj_with_mqa.weight", "blk.3.attn_kv_a_mqa.weight"},
      {"model.layers.3.self_attn.kv_b_proj.weight", "blk.3.attn_kv_b.weight"},
      {"model.layers.3.mlp.gate_proj.weight", "blk.3.ffn_gate.weight"},
      {"model.layers.3." + moe + ".shared_experts.up_proj.weight", "blk.3.ffn_up_shexp.weight"},
      {"model.layers.3." + moe + ".gate.e_score_correction_bias", "blk.3.exp_probs_b.bias"},
      {"model.layers.12." + moe + ".e_score_correction_bias", "blk.12.exp_probs_b.bias"},
      {"model.layers.3.self_attn.g_proj.weight", "blk.3.attn_gate.weight"},
      {"model.layers.4.self_attn.g_proj.weight", "blk.4.ssm_g.weight"},
      {"model.layers.4.self_attn.A_log", "blk.4.ssm_a_log"},
      {"model.layers.4.self_attn.dt_bias", "blk.4.ssm_dt.bias"},
      {"model.layers.4.self_attn.q_conv1d.weight", "blk.4.ssm_conv1d_q.weight"},
      {"model.layers.4.self_attn.f_b_proj.weight", "blk.4.ssm_f_b.weight"},
      {"model.layers.4.self_attention_res_norm.weight", "blk.4.attn_res_norm.weight"},
      {"model.layers.4.mlp_res_proj.weight", "blk.4.ffn_res_proj.weight"},
      {"model.layers.4." + moe + ".routed_expert_norm.weight", "blk.4.ffn_routed_norm.weight"},
      {"model.output_attn_res_proj.weight", "output_res_proj.weight"},
  };
  for (auto const& [from, to] : names) { add(from); }
  maker.add("vision_tower.blocks.0.weight", "F8_E5M2", {4}, 1);
  maker.add("mm_projector.linear.weight", "F32", {4}, 4);
  maker.add("model.layers.03.input_layernorm.weight", "F32", {4}, 4);
  maker.add("something.else", "F32", {4}, 4);
  maker.add("model.rotary.mask", "BOOL", {4}, 1);
  temporary_folder const folder;
  write_file(folder / "model.safetensors", maker.bytes());
  auto const model = catalog::open(folder / "model.safetensors");
  check_blocks(model);
  for (auto const& [from, to] : names) {
    CAPTURE(from);
    CHECK(model.find(to) != nullptr);
  }
  CHECK(model.find("something.else") != nullptr);
  CHECK(model.find("model.layers.03.input_layernorm.weight") != nullptr);
  CHECK(model.blocks().size() == names.size() + 2);
}

TEST_CASE("fp8 weights and their scales are one matrix", "[format]") {
  struct scheme {
    char const* suffix;
    char const* dtype;
    std::vector<std::uint64_t> shape;
    scale_grid grid;
    quant_type type;
  };
  auto const use = GENERATE(
      scheme{"weight_scale", "F32", {}, scale_grid::per_tensor, quant_type::f32},
      scheme{"weight_scale", "BF16", {1}, scale_grid::per_tensor, quant_type::bf16},
      scheme{"weight_scale", "F32", {300}, scale_grid::per_row, quant_type::f32},
      scheme{"weight_scale", "F16", {300, 1}, scale_grid::per_row, quant_type::f16},
      scheme{"weight_scale_inv", "F32", {3, 2}, scale_grid::per_block128, quant_type::f32},
      scheme{"weight_scale_inv", "BF16", {3, 2}, scale_grid::per_block128, quant_type::bf16});
  auto const weight = random_bytes(300 * 200, 3);
  std::size_t count = std::string_view{use.dtype} == "F32" ? 4 : 2;
  for (auto const dim : use.shape) { count *= dim; }
  auto const scale = random_bytes(count, 4);
  temporary_folder const folder;
  safetensors_maker maker;
  maker.add("model.layers.0.self_attn.q_proj.input_scale", "F32", {}, 4);
  maker.add("model.layers.0.self_attn.q_proj.weight", "F8_E4M3", {300, 200}, text_of(weight));
  if (GENERATE(false, true)) { maker.add("model.layers.0.input_layernorm.weight", "F32", {5}, 4); }
  maker.add(std::string{"model.layers.0.self_attn.q_proj."} + use.suffix,
            use.dtype,
            use.shape,
            text_of(scale));
  write_file(folder / "model.safetensors", maker.bytes());
  auto const model = catalog::open(folder / "model.safetensors");
  check_blocks(model);
  auto const& place = model.get("blk.0.attn_q.weight");
  CHECK(place.layout.type == quant_type::fp8_e4m3);
  CHECK(place.layout.grid == use.grid);
  CHECK(place.layout.scale_type == use.type);
  auto const memory = load(model, *model.find_block(place.block));
  CHECK(matrix_data(memory, place.layout) == weight);
  auto const at = memory.begin() + static_cast<std::ptrdiff_t>(place.layout.scale_offset);
  CHECK(std::equal(scale.begin(), scale.end(), at));
}

TEST_CASE("packed experts are one block each, in one extent when their tensors touch", "[format]") {
  bool const int4 = GENERATE(true, false);
  temporary_folder const folder;
  safetensors_maker maker;
  auto const add = [&](std::string const& name, std::uint64_t rows, std::uint64_t cols) {
    if (int4) {
      maker.add(name + ".weight_packed", "I32", {rows, cols / 8}, 4);
      maker.add(name + ".weight_scale", "BF16", {rows, cols / 32}, 2);
    } else {
      maker.add(name + ".weight_packed", "U8", {rows, cols / 2}, 1);
      maker.add(name + ".weight_scale", "U8", {rows, cols / 32}, 1);
    }
  };
  for (int const expert :
       {0, 1, 10, 2, 3, 4, 5, 6, 7, 8, 9}) {  // the order of names, as in published files
    std::string const name = "model.layers.1.mlp.experts." + std::to_string(expert) + ".";
    add(name + "down_proj", 64, 32);
    add(name + "gate_proj", 32, 64);
    add(name + "up_proj", 32, 64);
  }
  maker.add("model.layers.1.mlp.experts.0.up_proj.weight_shape", "I64", {2}, 8);
  write_file(folder / "model.safetensors", maker.bytes());
  auto const model = catalog::open(folder / "model.safetensors");
  check_blocks(model);
  CHECK(model.experts_of(layer_id{1}) == 11);
  auto const& block = *model.find_block(expert_block(layer_id{1}, expert_id{10}));
  CHECK(block.extents.size() == 1);
  CHECK(block.names[0] == "blk.1.ffn_gate_exps.weight");
  CHECK(block.matrices[0].rows == 32);
  CHECK(block.matrices[2].rows == 64);
  CHECK(block.matrices[2].cols == 32);
  CHECK(block.matrices[0].grid == scale_grid::per_group32);
  CHECK(block.matrices[0].type == (int4 ? quant_type::int4_g32 : quant_type::mxfp4_packed));
  CHECK(block.matrices[0].scale_type == (int4 ? quant_type::bf16 : quant_type::i8));
  CHECK(block.file_bytes() == 3 * 64 * (int4 ? 16 + 2 : 16 + 1));
}

TEST_CASE("stacked experts of a re-saved checkpoint are cut like those of a GGUF", "[format]") {
  auto const gate_up = random_bytes(2 * 64 * 32 * 2, 5), down = random_bytes(2 * 32 * 32 * 2, 6);
  temporary_folder const folder;
  safetensors_maker maker;
  maker.add("model.layers.0.mlp.experts.gate_up_proj", "BF16", {2, 64, 32}, text_of(gate_up));
  maker.add("model.layers.0.mlp.experts.down_proj", "BF16", {2, 32, 32}, text_of(down));
  write_file(folder / "model.safetensors", maker.bytes());
  auto const model = catalog::open(folder / "model.safetensors");
  check_blocks(model);
  auto const& block = *model.find_block(expert_block(layer_id{0}, expert_id{1}));
  auto const memory = load(model, block);
  CHECK(matrix_data(memory, block.matrices[1]) == bytes(gate_up.begin() + 3 * 2048, gate_up.end()));
  CHECK(matrix_data(memory, block.matrices[2]) == bytes(down.begin() + 2048, down.end()));
}

TEST_CASE("incomplete or uneven experts are refused by layer, expert and tensor", "[format]") {
  auto const open = [](auto const& change) {
    safetensors_maker maker;
    for (int expert = 0; expert < 3; ++expert) {
      for (std::string const part : {"w1", "w2", "w3"}) {
        std::vector<std::uint64_t> shape =
            part == "w2" ? std::vector<std::uint64_t>{8, 4} : std::vector<std::uint64_t>{4, 8};
        if (change(expert, part, shape)) {
          maker.add("model.layers.5.block_sparse_moe.experts." + std::to_string(expert) + "." +
                        part + ".weight",
                    "BF16",
                    shape,
                    2);
        }
      }
    }
    temporary_folder const folder;
    write_file(folder / "model.safetensors", maker.bytes());
    return refusal([&] { (void)catalog::open(folder.path()); });
  };
  CHECK_THAT(open([](int e, std::string const& p, auto&) { return e != 1 || p != "w3"; }),
             ContainsSubstring("expert 1 of layer 5 lacks `blk.5.ffn_up_exps.weight`"));
  CHECK_THAT(open([](int e, std::string const&, auto&) { return e != 1; }),
             ContainsSubstring("expert 1 of layer 5 lacks"));
  CHECK_THAT(
      open([](int e, std::string const& p, auto& shape) {
        if (e == 2 && p == "w2") { shape = {8, 6}; }
        return true;
      }),
      ContainsSubstring(
          "expert 2 of layer 5 has 8 x 6 values for its part of `blk.5.ffn_down_exps.weight`"));
}

TEST_CASE("weights and scales that do not belong together are refused", "[format]") {
  using parts =
      std::vector<std::tuple<std::string, std::string, std::vector<std::uint64_t>, std::size_t>>;
  auto const message = [](parts const& tensors, auto kind) {
    safetensors_maker maker;
    for (auto const& [name, dtype, shape, width] : tensors) {
      maker.add("lm_head." + name, dtype, shape, width);
    }
    temporary_folder const folder;
    write_file(folder / "model.safetensors", maker.bytes());
    return refusal<decltype(kind)>([&] { (void)catalog::open(folder.path()); });
  };
  terrace::format_error const damaged{""};
  terrace::not_supported const foreign{""};
  CHECK_THAT(message({{"weight", "F8_E4M3", {4, 4}, 1}}, damaged),
             ContainsSubstring("no scale tensor beside it"));
  CHECK_THAT(message({{"weight_scale", "F32", {4}, 4}}, damaged),
             ContainsSubstring("a scale without the weight"));
  CHECK_THAT(message({{"weight", "F8_E4M3", {4, 4}, 1}, {"weight_scale", "F32", {3}, 4}}, damaged),
             ContainsSubstring("neither one scale, nor one per row"));
  CHECK_THAT(message({{"weight", "F8_E4M3", {4, 4}, 1},
                      {"weight_scale", "F32", {4}, 4},
                      {"weight_scale_inv", "F32", {1, 1}, 4}},
                     damaged),
             ContainsSubstring("stands for the same part"));
  CHECK_THAT(message({{"weight_packed", "U8", {4, 16}, 1}}, damaged),
             ContainsSubstring("has no `weight_scale`"));
  CHECK_THAT(message({{"weight", "F32", {0, 4}, 4}}, damaged),
             ContainsSubstring("a dimension of 0"));
  CHECK_THAT(message({{"weight", "F8_E5M2", {4, 4}, 1}}, foreign),
             ContainsSubstring("type F8_E5M2"));
  CHECK_THAT(message({{"weight", "I8", {4, 4}, 1}, {"weight_scale", "F32", {4}, 4}}, foreign),
             ContainsSubstring("type I8, which no weight is read in"));
  CHECK_THAT(message({{"weight", "BF16", {4, 4}, 2}, {"weight_scale", "F32", {4}, 4}}, foreign),
             ContainsSubstring("scales a weight of type BF16"));
  CHECK_THAT(message({{"weight_packed", "U8", {4, 32}, 1}, {"weight_scale", "F8_E4M3", {4, 4}, 1}},
                     foreign),
             ContainsSubstring("not MXFP4 with one scale per 32 columns"));
  CHECK_THAT(message({{"weight_packed", "U8", {4, 16}, 1},
                      {"weight_scale", "U8", {4, 1}, 1},
                      {"weight_global_scale", "F32", {1}, 4}},
                     foreign),
             ContainsSubstring("belongs to a quantisation that is not read"));
}

TEST_CASE("a model that says it has an output head must have one", "[format]") {
  temporary_folder const folder;
  safetensors_maker maker;
  maker.add("model.embed_tokens.weight", "F32", {4, 4}, 4);
  write_file(folder / "model.safetensors", maker.bytes());
  auto const config = [&](std::string const& tied) {
    write_file(folder / "config.json",
               R"({"architectures":["LlamaForCausalLM"],"hidden_size":4,"intermediate_size":4,)"
               R"("max_position_embeddings":4,"num_attention_heads":1,"num_hidden_layers":1,)"
               R"("rms_norm_eps":1e-5,"vocab_size":4,"tie_word_embeddings":)" +
                   tied + "}");
  };
  config("true");
  CHECK(catalog::open(folder.path()).find("output.weight") == nullptr);
  config("false");
  CHECK_THAT(refusal([&] { (void)catalog::open(folder.path()); }),
             ContainsSubstring("`lm_head.weight` is missing"));
}

TEST_CASE("an index must tell the truth about its files", "[format]") {
  temporary_folder const folder;
  safetensors_maker first, second;
  first.add("model.norm.weight", "F32", {4}, 4);
  second.add("lm_head.weight", "F32", {4}, 4);
  write_file(folder / "a.safetensors", first.bytes());
  write_file(folder / "b.safetensors", second.bytes());
  auto const index =
      [&](std::string const& norm, std::string const& head, std::string const& more = "") {
        write_file(folder / "model.safetensors.index.json",
                   R"({"weight_map":{"model.norm.weight":")" + norm + R"(","lm_head.weight":")" +
                       head + "\"" + more + "}}");
      };
  auto const refused = [&] { return refusal([&] { (void)catalog::open(folder.path()); }); };
  index("a.safetensors", "b.safetensors");
  CHECK(catalog::open(folder.path()).files().size() == 2);
  CHECK(catalog::open(folder / "b.safetensors").find("output_norm.weight") != nullptr);
  index("b.safetensors", "a.safetensors");
  CHECK_THAT(refused(), ContainsSubstring("is said to be in"));
  index("a.safetensors", "c.safetensors");
  CHECK_THAT(
      refusal([&] { (void)catalog::open(folder / "model.safetensors.index.json"); }),
      ContainsSubstring(
          "c.safetensors: this file is listed in model.safetensors.index.json but is missing"));
  index("a.safetensors", "b.safetensors", R"(,"model.extra":"b.safetensors")");
  CHECK_THAT(refused(), ContainsSubstring("`model.extra` is said to be in `b.safetensors`"));
  index("a.safetensors", "b.safetensors");
  write_file(folder / "b.safetensors", first.bytes());
  CHECK_THAT(refused(), ContainsSubstring("tensor `model.norm.weight` is also in a.safetensors"));
}

TEST_CASE("the golden models are the same in both containers", "[format]") {
  std::string const golden = TERRACE_GOLDEN_DIR;
  if (golden.empty()) { SKIP("TERRACE_GOLDEN_DIR is not set"); }
  std::string const name =
      GENERATE("llama-tiny", "minimax-m2-tiny", "kimi-k2-tiny", "kimi-k3-tiny");
  bool const k3 = name == "kimi-k3-tiny";
  auto const packed =
      catalog::open(golden + "/" + name + "/" + name + (k3 ? ".gguf" : "-bf16.gguf"));
  auto const folder = catalog::open(golden + "/" + name);
  CHECK(folder.kind() == terrace::format::container::safetensors);
  CHECK(packed.architecture() == folder.architecture());
  CHECK(packed.expert_layers() == folder.expert_layers());
  check_blocks(packed);
  check_blocks(folder);

  for (auto const& [key, value] : folder.meta()) {
    CAPTURE(key);
    bool const own = key.ends_with("_freq_factor") || key.ends_with("eos_token_ids") ||
                     key == "general.name" || key.starts_with("llama.rope.scaling.") ||
                     key == "minimax-m2.vocab_size" || key.starts_with("kimi-k3.expert_group_") ||
                     key.ends_with(".tie_word_embeddings");
    if (own) { continue; }
    REQUIRE(packed.meta().contains(key));
    if (std::holds_alternative<std::string>(value)) {
      CHECK(packed.meta().get_string(key) == folder.meta().get_string(key));
    } else if (std::holds_alternative<std::vector<std::uint64_t>>(value)) {
      CHECK(packed.meta().try_integers(key) == folder.meta().try_integers(key));
    } else if (!std::holds_alternative<bool>(value)) {
      CHECK(static_cast<float>(packed.meta().get_number(key)) ==
            static_cast<float>(folder.meta().get_number(key)));
    }
  }

  int compared = 0;
  for (block_info const& block : folder.blocks()) {
    std::string const& tensor = block.names.front();
    CAPTURE(tensor);
    bool const is_expert = terrace::kind_of(block.id) == terrace::block_kind::expert;
    bool const derived =
        tensor.ends_with("attn_kv_b.weight") ||  // GGUF keeps its two factors apart
        tensor.ends_with("_res_norm.weight") ||
        tensor.ends_with("_res_proj.weight") ||  // ... these as one product
        tensor.ends_with("ssm_a_log") ||         // ... and this as -e^A
        (name == "llama-tiny" &&
         (tensor.ends_with("attn_q.weight") || tensor.ends_with("attn_k.weight")));
    if (derived) { continue; }
    REQUIRE((is_expert || packed.find(tensor) != nullptr));
    auto const& other = *packed.find_block(is_expert ? block.id : packed.get(tensor).block);
    auto const mine = load(folder, block), theirs = load(packed, other);
    for (std::size_t i = 0; i < block.matrices.size(); ++i) {
      CHECK(block.matrices[i].rows == other.matrices[i].rows);
      CHECK(block.matrices[i].cols == other.matrices[i].cols);
      if (block.matrices[i].type != other.matrices[i].type) {
        continue;
      }  // norms are F32 in the GGUF
      CHECK(matrix_data(mine, block.matrices[i]) == matrix_data(theirs, other.matrices[i]));
      ++compared;
    }
  }
  CHECK(compared > 30);
}
