// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "config_text.hpp"
#include "shape.hpp"
#include "stored_tensors.hpp"
#include "tensor_list.hpp"
#include "tokenizer_text.hpp"

#include <terrace/core/error.hpp>
#include <terrace/core/quant_type.hpp>
#include <terrace/format/gguf_writer.hpp>
#include <terrace/format/model_config.hpp>
#include <terrace/format/shard_name.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace terrace::synth {

/// What to make.
struct model_request {
  model_shape shape;
  type_choice types;
  bool safetensors = false;
  std::string name;  ///< of the model; names a GGUF's files too
  std::uint32_t splits = 1;
  double zipf = 0;
  std::uint64_t seed = 0;
};

/// One file to write: what it starts with, then tensors. Bytes that neither covers are zero.
struct planned_file {
  std::string name;
  std::string head;
  std::size_t first = 0;               ///< its tensors are this one and those after it
  std::vector<std::uint64_t> offsets;  ///< of each of them
  std::uint64_t bytes = 0;
};

/// A model on its way to the disk.
struct planned_model {
  std::vector<stored_tensor> tensors;
  std::vector<planned_file> files;  ///< those that make a folder a model come last
  std::vector<substitution> substitutions;

  [[nodiscard]] std::uint64_t bytes() const noexcept {
    std::uint64_t sum = 0;
    for (planned_file const& file : files) { sum += file.bytes; }
    return sum;
  }
};

namespace detail {

/// Ends of `parts` runs of tensors of about the same size. Errors: contract_error when there are
/// fewer tensors than parts.
[[nodiscard]] inline std::vector<std::size_t> even_parts(std::vector<stored_tensor> const& tensors,
                                                         std::uint32_t parts) {
  if (tensors.size() < parts) {
    throw contract_error{"--splits " + std::to_string(parts) + " is more than the model's " +
                         std::to_string(tensors.size()) + " tensors"};
  }
  double total = 0;
  for (stored_tensor const& tensor : tensors) { total += static_cast<double>(tensor.bytes); }
  std::vector<std::size_t> ends;
  double sum = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    sum += static_cast<double>(tensors[i].bytes);
    std::size_t const open = parts - ends.size();
    bool const full = sum >= total * static_cast<double>(ends.size() + 1) / parts;
    bool const must = tensors.size() - i - 1 < open;  // each part left over needs a tensor
    if (ends.size() + 1 < parts && (full || must)) { ends.push_back(i + 1); }
  }
  ends.push_back(tensors.size());
  return ends;
}

/// A file without tensors.
[[nodiscard]] inline planned_file text_file(std::string name, std::string text) {
  std::uint64_t const bytes = text.size();
  return {.name = std::move(name), .head = std::move(text), .offsets = {}, .bytes = bytes};
}

[[nodiscard]] inline std::string file_name(std::string const& stem,
                                           std::uint32_t number,
                                           std::uint32_t count,
                                           char const* extension) {
  if (count == 1) { return stem + extension; }
  return format::shard_file_name({stem, number, count}, number, extension);
}

/// Keys of a GGUF that config.json has too, in GGUF's spelling.
inline void set_model_keys(format::gguf_writer& out, model_request const& asked) {
  auto const meta = format::parse_model_config(config_of(asked.shape, asked.types).dump(),
                                               generation_config_of(asked.shape).dump(),
                                               "the made-up configuration");
  for (auto const& [key, value] : meta) {
    bool const ours = key.ends_with(".tie_word_embeddings") || key.starts_with("tokenizer.");
    // What llama stretches a context by is a tensor in GGUF.
    bool const stretch = key.starts_with("llama.rope.scaling.");
    if (!ours && !stretch) { out.set(key, value); }
  }
  out.set("general.type", std::string{"model"});
  out.set("general.name", asked.name);
}

inline void plan_gguf(model_request const& asked, planned_model& out) {
  format::gguf_writer writer;
  set_model_keys(writer, asked);
  made_tokenizer{asked.shape}.write(writer);
  for (stored_tensor const& tensor : out.tensors) {
    writer.add_tensor(tensor.name, tensor.type, {tensor.shape.rbegin(), tensor.shape.rend()});
  }
  auto const ends = even_parts(out.tensors, asked.splits);
  std::size_t first = 0;
  for (std::uint32_t i = 0; i < asked.splits; ++i) {
    auto layout =
        asked.splits == 1 ? writer.layout() : writer.layout(i, asked.splits, first, ends[i]);
    out.files.push_back({.name = file_name(asked.name, i + 1, asked.splits, ".gguf"),
                         .head = std::move(layout.head),
                         .first = first,
                         .offsets = std::move(layout.offsets),
                         .bytes = layout.bytes});
    first = ends[i];
  }
}

/// One safetensors file with tensors [first, last), packed in order behind a header that ends on
/// a whole page.
[[nodiscard]] inline planned_file plan_safetensors_file(std::vector<stored_tensor> const& tensors,
                                                        std::size_t first,
                                                        std::size_t last) {
  constexpr std::uint64_t page = 4096;
  std::string text = R"({"__metadata__":{"format":"pt"})";
  std::vector<std::uint64_t> offsets;
  std::uint64_t at = 0;
  for (std::size_t i = first; i < last; ++i) {
    stored_tensor const& tensor = tensors[i];
    text += ",\"" + tensor.name + R"(":{"dtype":")" + std::string{tensor.dtype} + R"(","shape":[)";
    for (std::size_t d = 0; d < tensor.shape.size(); ++d) {
      text += (d == 0 ? "" : ",") + std::to_string(tensor.shape[d]);
    }
    text += R"(],"data_offsets":[)" + std::to_string(at) + ',' + std::to_string(at + tensor.bytes) +
            "]}";
    offsets.push_back(at);
    at += tensor.bytes;
  }
  text += '}';
  text.resize(static_cast<std::size_t>(round_up(8 + text.size(), page) - 8), ' ');
  std::uint64_t const size = text.size();
  std::string head(8, '\0');
  std::memcpy(head.data(), &size, 8);
  head += text;
  for (std::uint64_t& offset : offsets) { offset += head.size(); }
  std::uint64_t const bytes = head.size() + at;
  return {.name = {},
          .head = std::move(head),
          .first = first,
          .offsets = std::move(offsets),
          .bytes = bytes};
}

inline void plan_safetensors(model_request const& asked, planned_model& out) {
  auto const ends = even_parts(out.tensors, asked.splits);
  std::size_t first = 0;
  json map = json::object();
  auto& entries = map.get_ref<json::object_t&>();  // in order: a look-up each would be square
  std::uint64_t total = 0;
  for (std::uint32_t i = 0; i < asked.splits; ++i) {
    planned_file file = plan_safetensors_file(out.tensors, first, ends[i]);
    file.name = file_name("model", i + 1, asked.splits, ".safetensors");
    for (; first < ends[i]; ++first) {
      entries.push_back({out.tensors[first].name, file.name});
      total += out.tensors[first].bytes;
    }
    out.files.push_back(std::move(file));
  }
  for (auto& [name, text] : made_tokenizer{asked.shape}.files()) {
    out.files.push_back(text_file(name, std::move(text)));
  }
  out.files.push_back(
      text_file("generation_config.json", generation_config_of(asked.shape).dump(2) + '\n'));
  if (asked.splits > 1) {
    json const index{{"metadata", {{"total_size", total}}}, {"weight_map", std::move(map)}};
    out.files.push_back(text_file("model.safetensors.index.json", index.dump(1) + '\n'));
  }
  out.files.push_back(text_file("config.json", config_of(asked.shape, asked.types).dump(2) + '\n'));
}

}  // namespace detail

/// Lays a model out, without making any of its weights.
/// Errors: contract_error for dimensions, types or splits that do not go together.
[[nodiscard]] inline planned_model plan_model(model_request const& asked) {
  check(asked.shape);
  auto const model = tensor_lister{asked.shape, asked.zipf, asked.seed}.list();
  tensor_storer storer{asked.types};
  planned_model out;
  out.tensors = asked.safetensors ? storer.for_safetensors(model) : storer.for_gguf(model);
  out.substitutions = storer.substitutions();
  if (asked.safetensors) {
    detail::plan_safetensors(asked, out);
  } else {
    detail::plan_gguf(asked, out);
  }
  return out;
}

}  // namespace terrace::synth
