// SPDX-License-Identifier: Apache-2.0
#include "support/scratch_folder.hpp"
#include "synth/file_writer.hpp"
#include "synth/model_files.hpp"
#include "synth/shape.hpp"
#include "synth/type_options.hpp"

#include <terrace/core/error.hpp>
#include <terrace/format/byte_source.hpp>
#include <terrace/format/catalog.hpp>
#include <terrace/format/gguf.hpp>
#include <terrace/format/safetensors.hpp>
#include <terrace/tokenize/tokenizer.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

using namespace terrace;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;
using test::bytes_of;
using test::scratch_folder;

namespace {

using shapes = std::map<std::string, std::vector<std::uint64_t>>;

/// A trained model and its dimensions.
struct known_model {
  std::string name, gguf;
  synth::model_shape shape;
};
std::vector<known_model> known_models() {
  auto const sized = [](synth::model_shape shape) { return shape; };
  return {{"llama-tiny",
           "llama-tiny-bf16.gguf",
           sized({.family = synth::family::llama,
                  .layers = 6,
                  .hidden = 256,
                  .vocab = 4096,
                  .context = 2048,
                  .heads = 8,
                  .kv_heads = 2,
                  .head_dim = 32,
                  .rope_dim = 32,
                  .dense_width = 768})},
          {"minimax-m2-tiny",
           "minimax-m2-tiny-bf16.gguf",
           sized({.family = synth::family::minimax_m2,
                  .layers = 5,
                  .hidden = 256,
                  .vocab = 2048,
                  .context = 2048,
                  .heads = 12,
                  .kv_heads = 2,
                  .head_dim = 32,
                  .rope_dim = 16,
                  .experts = 48,
                  .top_k = 4,
                  .expert_width = 32})},
          {"kimi-k2-tiny",
           "kimi-k2-tiny-bf16.gguf",
           sized({.family = synth::family::kimi_k2,
                  .layers = 6,
                  .hidden = 256,
                  .vocab = 2304,
                  .context = 2048,
                  .heads = 8,
                  .rope_dim = 16,
                  .nope_dim = 32,
                  .value_dim = 32,
                  .q_lora = 96,
                  .kv_lora = 64,
                  .dense_width = 768,
                  .dense_layers = 1,
                  .experts = 64,
                  .top_k = 6,
                  .expert_width = 32,
                  .shared_experts = 1})},
          {"kimi-k3-tiny",
           "kimi-k3-tiny.gguf",
           sized({.family = synth::family::kimi_k3,
                  .layers = 9,
                  .hidden = 256,
                  .vocab = 4096,
                  .context = 8192,
                  .heads = 4,
                  .head_dim = 64,
                  .rope_dim = 32,
                  .nope_dim = 64,
                  .value_dim = 64,
                  .q_lora = 96,
                  .kv_lora = 64,
                  .dense_width = 768,
                  .dense_layers = 1,
                  .experts = 64,
                  .top_k = 8,
                  .expert_width = 64,
                  .shared_experts = 2,
                  .latent = 128,
                  .res_block = 2})}};
}

synth::model_request request_for(synth::model_shape const& shape, bool safetensors) {
  return {.shape = shape,
          .types = synth::usual_types(shape.family, safetensors),
          .safetensors = safetensors,
          .name = "made"};
}

std::filesystem::path trained(std::string const& name) {
  std::filesystem::path const folder = TERRACE_GOLDEN_DIR;
  if (folder.empty()) { SKIP("TERRACE_GOLDEN_DIR is not configured"); }
  return folder / name;
}

void write(synth::model_request const& asked, std::filesystem::path const& folder, int threads) {
  std::filesystem::create_directories(folder);
  synth::write_model(synth::plan_model(asked), folder, asked.seed, threads, [](std::uint64_t) {});
}

}  // namespace

TEST_CASE("a made-up GGUF has the tensors and model keys of a trained one", "[tools]") {
  for (auto const& known : known_models()) {
    INFO(known.name);
    auto const file = format::read_gguf(format::file_source{trained(known.name) / known.gguf});
    shapes expected, made;
    for (auto const& tensor : file.tensors) {
      expected[tensor.name] = {tensor.dims.rbegin(), tensor.dims.rend()};
    }
    scratch_folder const folder;
    write(request_for(known.shape, false), folder.file(""), 1);
    auto const ours = format::read_gguf(format::file_source{folder.file("made.gguf")});
    for (auto const& tensor : ours.tensors) {
      made[tensor.name] = {tensor.dims.rbegin(), tensor.dims.rend()};
    }
    CHECK(made == expected);
    auto const prefix = file.meta.get_string("general.architecture") + '.';
    for (auto const& [key, value] : file.meta) {
      bool const unused = key == "kimi-k3.rope.freq_base";  // nothing rotates there
      if (!key.starts_with(prefix) || unused) { continue; }
      INFO(key);
      CHECK(ours.meta.contains(key));
    }
  }
}

TEST_CASE("made-up safetensors have the tensors and element types of trained ones", "[tools]") {
  for (auto const& known : known_models()) {
    INFO(known.name);
    auto const file =
        format::read_safetensors(format::file_source{trained(known.name) / "model.safetensors"});
    auto asked = request_for(known.shape, true);
    if (known.shape.family != synth::family::kimi_k3) {  // the trained ones are not quantised
      asked.types[synth::tensor_class::experts] = quant_type::bf16;
      asked.types[synth::tensor_class::experts_down] = quant_type::bf16;
      asked.types[synth::tensor_class::attention] = quant_type::bf16;
    }
    std::map<std::string, std::pair<std::string, std::vector<std::uint64_t>>> expected, made;
    for (auto const& tensor : file.tensors) {
      expected[tensor.name] = {std::string{format::name_of(tensor.dtype)}, tensor.shape};
    }
    for (auto const& tensor : synth::plan_model(asked).tensors) {
      made[tensor.name] = {std::string{tensor.dtype}, tensor.shape};
    }
    CHECK(made.size() == expected.size());
    for (auto const& [name, facts] : expected) {
      INFO(name);
      REQUIRE(made.contains(name));
      CHECK(made.at(name) == facts);
    }
  }
}

TEST_CASE("published models come out at their published sizes", "[tools]") {
  auto const bytes = [](synth::family family) {
    return static_cast<double>(
        synth::plan_model(request_for(synth::real_shape(family), true)).bytes());
  };
  CHECK(std::abs(bytes(synth::family::llama) / 16.06e9 - 1) < 0.01);
  CHECK(std::abs(bytes(synth::family::kimi_k2) / 595e9 - 1) < 0.01);
  CHECK(std::abs(bytes(synth::family::kimi_k3) / 1.56e12 - 1) < 0.01);
  CHECK(std::abs(bytes(synth::family::kimi_linear) / 98e9 - 1) < 0.01);
}

TEST_CASE("a catalog opens what is written, whole or split, in both containers", "[tools]") {
  for (auto const& entry : synth::families) {
    for (bool const safetensors : {false, true}) {
      for (std::uint32_t const splits : {1U, 3U}) {
        INFO(entry.name << (safetensors ? ", safetensors, " : ", GGUF, ") << splits);
        auto asked = request_for(synth::small_shape(entry.value), safetensors);
        asked.splits = splits;
        scratch_folder const folder;
        write(asked, folder.file(""), 2);
        auto const model = format::catalog::open(folder.file(""));
        CHECK(model.files().size() == splits);
        CHECK(model.meta().contains(model.architecture() + ".block_count"));
        int const mixtures =
            asked.shape.experts == 0 ? 0 : asked.shape.layers - asked.shape.dense_layers;
        CHECK(static_cast<int>(model.expert_layers().size()) == mixtures);
        for (layer_id const layer : model.expert_layers()) {
          CHECK(model.experts_of(layer) == asked.shape.experts);
        }
      }
    }
  }
}

TEST_CASE("both containers carry one tokenizer, whose tokens give the text back", "[tools]") {
  std::string const text = "The quick brown fox: 12,345 \xC3\xA9t\xC3\xA9s\n\n\xE4\xB8\xAD!";
  for (auto const& entry : synth::families) {
    INFO(entry.name);
    scratch_folder const folder;
    auto const shape = synth::small_shape(entry.value);
    write(request_for(shape, false), folder.file("one"), 1);
    write(request_for(shape, true), folder.file("folder"), 1);
    auto const packed = format::catalog::open(folder.file("one"));
    auto const first = tokenize::tokenizer::from_metadata(packed.meta());
    auto const second =
        tokenize::tokenizer::from_folder(folder.file("folder"), packed.architecture());
    auto const ids = first.encode(text, false);
    CHECK(ids.size() < text.size());
    CHECK(first.decode(ids) == text);
    CHECK(second.encode(text, false) == ids);
    CHECK(first.bos() == second.bos());
    CHECK(first.end_ids() == second.end_ids());
  }
}

TEST_CASE("files follow from the seed, however many threads write them", "[tools]") {
  scratch_folder const folder;
  auto asked = request_for(synth::small_shape(synth::family::kimi_k2), false);
  write(asked, folder.file("one"), 1);
  write(asked, folder.file("four"), 4);
  asked.seed = 1;
  write(asked, folder.file("other"), 4);
  auto const first = bytes_of(folder.file("one/made.gguf"));
  CHECK(first == bytes_of(folder.file("four/made.gguf")));
  CHECK(first != bytes_of(folder.file("other/made.gguf")));
  CHECK_FALSE(std::filesystem::exists(folder.file("one/made.gguf.partial")));
}

TEST_CASE("rows that are not whole blocks get another type, and it is said", "[tools]") {
  auto shape = synth::small_shape(synth::family::kimi_k2);
  shape.expert_width = 96;
  auto const model = synth::plan_model(request_for(shape, false));
  REQUIRE(model.substitutions.size() == 1);
  CHECK(model.substitutions[0].tensor == "blk.1.ffn_down_exps.weight");
  CHECK(model.substitutions[0].used == quant_type::q8_0);
}

TEST_CASE("dimensions that do not go together are refused by name", "[tools]") {
  auto const refused = [](int synth::model_shape::*which, int value, std::string const& part) {
    auto shape = synth::small_shape(synth::family::kimi_k2);
    shape.*which = value;
    CHECK_THROWS_MATCHES(
        synth::check(shape), contract_error, MessageMatches(ContainsSubstring(part)));
  };
  refused(&synth::model_shape::top_k, 17, "--top-k 17 of 16");
  refused(&synth::model_shape::dense_layers, 4, "--dense-layers 4");
  refused(&synth::model_shape::rope_dim, 33, "even");
  refused(&synth::model_shape::vocab, 300, "--vocab 300");
  refused(&synth::model_shape::hidden, 0, "--hidden is 0");
}
