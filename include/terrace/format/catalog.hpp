// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/block.hpp>
#include <terrace/core/error.hpp>
#include <terrace/core/ids.hpp>
#include <terrace/core/metadata.hpp>
#include <terrace/format/byte_source.hpp>
#include <terrace/format/detail/block_list.hpp>
#include <terrace/format/detail/gguf_blocks.hpp>
#include <terrace/format/detail/safetensors_blocks.hpp>
#include <terrace/format/detail/text.hpp>
#include <terrace/format/gguf_set.hpp>
#include <terrace/format/model_config.hpp>
#include <terrace/format/model_files.hpp>
#include <terrace/format/safetensors.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <unordered_map>
#include <utility>
#include <vector>

namespace terrace::format {

/// What the files of a model hold: metadata and blocks with their extents, under one set of names
/// for both containers.
///
/// Names and metadata keys are those of GGUF ("blk.3.attn_q.weight", "llama.block_count"). Knows
/// nothing of tiers, reads no tensor data (except the float that scales an NVFP4 tensor) and keeps
/// no file open.
///
/// Blocks: one per dense tensor, one per routed expert with its matrices in the order gate, up,
/// down. A quantised matrix
///         whose scales are tensors of their own is one matrix. See `detail::arrange` for where
///         extents go in memory.
class catalog {
 public:
  /// A dense matrix: the block that holds it and its layout there.
  using tensor_place = detail::block_list::place;

  /// Opens any shard of a GGUF, a safetensors file or its index, or a folder.
  ///
  /// Errors: format_error when a file is not what its format says, a shard or expert is missing, or
  ///         a folder holds more than one model; not_supported for settings or encodings that are
  ///         not computed; io_error.
  /// Cost:   reads the header of every file once.
  [[nodiscard]] static catalog open(std::filesystem::path const& model) {
    model_files files = find_model_files(model);
    catalog opened;
    opened.kind_ = files.kind;
    opened.folder_ = files.folder;
    if (files.kind == container::gguf) {
      opened.open_gguf(files.files.front());
    } else {
      opened.open_safetensors(std::move(files));
    }
    opened.measure();
    return opened;
  }

  /// Indexed by file_id.
  [[nodiscard]] std::vector<std::filesystem::path> const& files() const noexcept { return files_; }
  [[nodiscard]] container kind() const noexcept { return kind_; }
  /// Where tokenizer files and config.json lie, if there are any.
  [[nodiscard]] std::filesystem::path const& folder() const noexcept { return folder_; }
  /// Metadata under GGUF keys.
  [[nodiscard]] metadata const& meta() const noexcept { return meta_; }
  /// "llama", "minimax-m2", "deepseek2", ...: the spelling of GGUF for both containers.
  [[nodiscard]] std::string architecture() const {
    return meta_.get_string("general.architecture");
  }

  [[nodiscard]] std::span<block_info const> blocks() const noexcept { return blocks_.blocks(); }
  [[nodiscard]] block_info const* find_block(block_id id) const noexcept {
    return blocks_.find(id);
  }
  /// A dense matrix by its GGUF name, or nullptr.
  [[nodiscard]] tensor_place const* find(std::string_view name) const { return blocks_.find(name); }
  /// Errors: format_error when the model has no such tensor.
  [[nodiscard]] tensor_place const& get(std::string_view name) const {
    if (auto const* place = find(name)) { return *place; }
    throw format_error{files_.front().string() + ": tensor " + detail::in_quotes(name) +
                       " is missing; the model is incomplete or of another architecture"};
  }

  /// Layers with routed experts, ascending.
  [[nodiscard]] std::vector<layer_id> const& expert_layers() const noexcept {
    return expert_layers_;
  }
  /// Routed experts of a layer; 0 for a dense one.
  [[nodiscard]] int experts_of(layer_id layer) const {
    auto const found = blocks_.experts_by_layer().find(layer);
    return found == blocks_.experts_by_layer().end() ? 0 : static_cast<int>(found->second);
  }
  /// Sizes of all files together.
  [[nodiscard]] std::uint64_t total_file_bytes() const noexcept { return total_file_bytes_; }
  /// Memory of the largest expert block; 0 without experts.
  [[nodiscard]] std::uint64_t largest_expert_bytes() const noexcept {
    return largest_expert_bytes_;
  }

 private:
  catalog() = default;

  void open_gguf(std::filesystem::path const& named) {
    gguf_set set = read_gguf_set(named);
    files_ = set.files;
    detail::gguf_block_builder{set, blocks_}.build();
    meta_ = std::move(set.meta);
  }

  void open_safetensors(model_files found) {
    files_ = std::move(found.files);
    std::vector<safetensors_file> headers;
    for (auto const& path : files_) {
      std::error_code code;
      if (!found.index.empty() && !std::filesystem::exists(path, code)) {
        throw format_error{path.string() + ": this file is listed in " +
                           found.index.filename().string() +
                           " but is missing; get it and put it beside the others"};
      }
      headers.push_back(read_safetensors(file_source{path}));
    }
    check_tensors(headers, found);
    std::error_code code;
    if (std::filesystem::exists(folder_ / "config.json", code)) {
      meta_ = read_model_config(folder_);
    } else {
      meta_ = metadata{files_.front().string()};
    }
    detail::safetensors_block_builder{files_, headers, blocks_}.build();
    check_head();
  }

  /// A model without an output head uses its embedding there; one that says it has its own must.
  void check_head() const {
    auto const arch = meta_.try_string("general.architecture");
    bool const own = arch && meta_.try_bool(*arch + ".tie_word_embeddings") == false;
    if (own && find("token_embd.weight") != nullptr && find("output.weight") == nullptr) {
      throw format_error{files_.front().string() +
                         ": `lm_head.weight` is missing although config.json says that the model "
                         "has one (`tie_word_embeddings` is false); get the model again"};
    }
  }

  /// No tensor in two files, and the index tells the truth.
  void check_tensors(std::span<safetensors_file const> headers, model_files const& found) const {
    std::unordered_map<std::string_view, std::size_t> file_of;
    for (std::size_t file = 0; file < headers.size(); ++file) {
      for (safetensors_tensor const& tensor : headers[file].tensors) {
        auto const [first, fresh] = file_of.emplace(tensor.name, file);
        if (!fresh) {
          throw format_error{files_[file].string() + ": tensor " + detail::in_quotes(tensor.name) +
                             " is also in " + files_[first->second].filename().string() +
                             "; the shards are not of one model"};
        }
      }
    }
    for (auto const& [tensor, file] : found.weight_map) {
      auto const at = file_of.find(tensor);
      if (at == file_of.end() || files_[at->second].filename() != file) {
        throw format_error{found.index.string() + ": tensor " + detail::in_quotes(tensor) +
                           " is said to be in " + detail::in_quotes(file) +
                           " but is not there; the files are not of one model"};
      }
    }
  }

  void measure() {
    for (auto const& [layer, count] : blocks_.experts_by_layer()) {
      expert_layers_.push_back(layer);
    }
    check_experts();
    for (block_info const& block : blocks()) {
      if (kind_of(block.id) == block_kind::expert) {
        largest_expert_bytes_ = std::max(largest_expert_bytes_, block.bytes);
      }
    }
    for (auto const& path : files_) { total_file_bytes_ += file_source{path}.size_bytes(); }
  }

  /// Every layer has as many experts as the metadata says, and every layer with a router has some.
  void check_experts() const {
    auto const arch = meta_.try_string("general.architecture");
    auto const stated = arch ? meta_.try_unsigned(*arch + ".expert_count").value_or(0) : 0;
    for (layer_id const layer : expert_layers_) {
      if (stated == 0 || static_cast<std::uint64_t>(experts_of(layer)) == stated) { continue; }
      throw format_error{files_.front().string() + ": layer " + text_of(layer) + " has " +
                         std::to_string(experts_of(layer)) + " experts where the metadata says " +
                         std::to_string(stated) + "; the model is incomplete, get it again"};
    }
    for (block_info const& block : blocks()) {
      layer_id const layer = layer_of(block.id);
      if (layer == no_layer || experts_of(layer) != 0) { continue; }
      if (block.names.front() == "blk." + text_of(layer) + ".ffn_gate_inp.weight") {
        throw format_error{files_.front().string() + ": layer " + text_of(layer) +
                           " has a router but no experts; the model is incomplete, get it again"};
      }
    }
  }
  [[nodiscard]] static std::string text_of(layer_id layer) {
    return std::to_string(static_cast<std::uint32_t>(layer));
  }

  container kind_ = container::gguf;
  std::filesystem::path folder_;
  std::vector<std::filesystem::path> files_;
  metadata meta_;
  detail::block_list blocks_;
  std::vector<layer_id> expert_layers_;
  std::uint64_t total_file_bytes_ = 0;
  std::uint64_t largest_expert_bytes_ = 0;
};

}  // namespace terrace::format
