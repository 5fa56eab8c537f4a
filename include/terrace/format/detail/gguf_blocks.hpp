// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/block.hpp>
#include <terrace/core/error.hpp>
#include <terrace/format/byte_source.hpp>
#include <terrace/format/detail/block_list.hpp>
#include <terrace/format/detail/text.hpp>
#include <terrace/format/gguf_set.hpp>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

namespace terrace::format::detail {

/// Turns the tensors of a GGUF model into blocks: one per dense tensor, one per routed expert.
class gguf_block_builder {
 public:
  gguf_block_builder(gguf_set const& set, block_list& blocks) : set_{set}, blocks_{blocks} {}

  void build() {
    for (std::uint32_t file = 0; file < set_.headers.size(); ++file) {
      for (gguf_tensor const& tensor : set_.headers[file].tensors) {
        by_name_.emplace(tensor.name, found{&tensor, file});
      }
    }
    read_multipliers();
    for (std::uint32_t file = 0; file < set_.headers.size(); ++file) {
      for (gguf_tensor const& tensor : set_.headers[file].tensors) { sort_out({&tensor, file}); }
    }
    for (auto const& [layer, stacks] : stacks_) { add_experts(layer, stacks); }
  }

 private:
  struct found {
    gguf_tensor const* tensor = nullptr;
    std::uint32_t file = 0;
  };
  /// The tensors that hold all experts of one layer.
  struct expert_stacks {
    std::optional<found> gate, up, down, gate_up;
  };

  /// NVFP4 tensors have a float of their own (two spellings of its name) that scales every value,
  /// or one per expert.
  void read_multipliers() {
    for (auto const& [name, at] : by_name_) {
      if (at.tensor->type != quant_type::nvfp4 || !name.ends_with(".weight")) { continue; }
      std::string const stem{name.substr(0, name.size() - 7)};
      for (std::string const& spelling : {stem + ".scale", stem + ".weight.scale"}) {
        auto const scale = by_name_.find(spelling);
        if (scale == by_name_.end()) { continue; }
        multipliers_.emplace(at.tensor, read_floats(scale->second));
        consumed_.insert(scale->second.tensor);
        break;
      }
    }
  }
  std::vector<float> read_floats(found const& at) const {
    if (at.tensor->type != quant_type::f32 || at.tensor->dims.size() > 1 ||
        at.tensor->bytes > 4 * 65'536) {
      refuse(at, "scales an nvfp4 tensor but is not one float, or one per expert, of type f32");
    }
    std::vector<float> values(static_cast<std::size_t>(at.tensor->bytes / sizeof(float)));
    file_source{set_.files[at.file]}.read(at.tensor->offset,
                                          std::as_writable_bytes(std::span{values}));
    for (float const value : values) {
      if (!std::isfinite(value)) {
        refuse(at, "holds a scale that is not a finite number; the file is damaged");
      }
    }
    return values;
  }

  void sort_out(found const& at) {
    if (consumed_.contains(at.tensor)) { return; }
    if (std::optional<found>* const stack = stack_of(at.tensor->name)) {
      *stack = at;
    } else {
      blocks_.add_dense(set_.files[at.file].string(), whole(at));
    }
  }
  /// Where a stack of experts of this name belongs, or nullptr for a dense tensor.
  std::optional<found>* stack_of(std::string_view name) {
    layer_id const layer = layer_of_name(name);
    if (layer == no_layer) { return nullptr; }
    std::string_view const role = name.substr(name.find('.', 4) + 1);
    if (role == "ffn_gate_exps.weight") { return &stacks_[layer].gate; }
    if (role == "ffn_up_exps.weight") { return &stacks_[layer].up; }
    if (role == "ffn_down_exps.weight") { return &stacks_[layer].down; }
    if (role == "ffn_gate_up_exps.weight") { return &stacks_[layer].gate_up; }
    return nullptr;
  }

  stored_matrix whole(found const& at) const {
    gguf_tensor const& tensor = *at.tensor;
    std::uint64_t const columns = tensor.dims.empty() ? 1 : tensor.dims[0];
    std::uint64_t rows = 1;
    for (std::size_t i = 1; i < tensor.dims.size(); ++i) { rows *= tensor.dims[i]; }
    return {.name = tensor.name,
            .layout = {.type = tensor.type,
                       .rows = rows,
                       .cols = columns,
                       .multiplier = multiplier(at, 0, 1)},
            .data = {file_id{at.file}, tensor.offset, tensor.bytes}};
  }

  float multiplier(found const& at, std::uint64_t expert, std::uint64_t experts) const {
    auto const values = multipliers_.find(at.tensor);
    if (values == multipliers_.end()) { return 1.0F; }
    if (values->second.size() == 1) { return values->second[0]; }
    if (values->second.size() != experts) {
      refuse(at,
             "has " + std::to_string(values->second.size()) + " scales for " +
                 std::to_string(experts) + " matrices");
    }
    return values->second[static_cast<std::size_t>(expert)];
  }

  void add_experts(layer_id layer, expert_stacks const& stacks) {
    found const down = need(layer, stacks.down, "ffn_down_exps.weight");
    bool const fused = stacks.gate_up.has_value();
    if (fused && (stacks.gate || stacks.up)) {
      refuse(*stacks.gate_up,
             "stands beside separate gate or up experts of the same layer; the file is damaged");
    }
    found const gate = fused ? *stacks.gate_up : need(layer, stacks.gate, "ffn_gate_exps.weight");
    found const up = fused ? *stacks.gate_up : need(layer, stacks.up, "ffn_up_exps.weight");
    std::uint64_t const experts = count_of(down);
    check_shapes(gate, up, down, fused ? 2 : 1);
    std::string const source = set_.files[down.file].string();
    for (std::uint64_t expert = 0; expert < experts; ++expert) {
      blocks_.add_expert(source,
                         layer,
                         {.gate = slice(gate, expert, 0, fused ? 2 : 1),
                          .up = slice(up, expert, fused ? 1 : 0, fused ? 2 : 1),
                          .down = slice(down, expert, 0, 1)});
    }
  }

  found need(layer_id layer, std::optional<found> const& at, char const* role) const {
    if (at) { return *at; }
    throw format_error{set_.files.front().string() + ": layer " +
                       std::to_string(static_cast<std::uint32_t>(layer)) +
                       " has experts but tensor `blk." +
                       std::to_string(static_cast<std::uint32_t>(layer)) + "." + role +
                       "` is missing; the model is incomplete, get it again"};
  }

  std::uint64_t count_of(found const& at) const {
    if (at.tensor->dims.size() != 3) {
      refuse(at,
             "has " + std::to_string(at.tensor->dims.size()) +
                 " dimensions; a stack of experts has 3");
    }
    return at.tensor->dims[2];
  }

  /// `parts`: 2 when gate and up are the halves of one stack.
  void check_shapes(found const& gate,
                    found const& up,
                    found const& down,
                    std::uint64_t parts) const {
    std::uint64_t const experts = count_of(down);
    std::uint64_t const inputs = down.tensor->dims[1];
    std::uint64_t const width = down.tensor->dims[0];
    for (found const& at : {gate, up}) {
      if (count_of(at) != experts || at.tensor->dims[0] != inputs ||
          at.tensor->dims[1] != width * parts) {
        refuse(at,
               "has shape " + shape(at) + " where " + in_quotes(down.tensor->name) + " of shape " +
                   shape(down) + " asks for " + std::to_string(inputs) + " x " +
                   std::to_string(width * parts) + " x " + std::to_string(experts) +
                   "; the file is damaged");
      }
    }
  }

  /// Part `part` of `parts` of the rows of one expert.
  stored_matrix slice(found const& at,
                      std::uint64_t expert,
                      std::uint64_t part,
                      std::uint64_t parts) const {
    gguf_tensor const& tensor = *at.tensor;
    std::uint64_t const rows = tensor.dims[1] / parts;
    std::uint64_t const bytes = rows * row_bytes(tensor.type, tensor.dims[0]);
    return {.name = tensor.name,
            .layout = {.type = tensor.type,
                       .rows = rows,
                       .cols = tensor.dims[0],
                       .multiplier = multiplier(at, expert, tensor.dims[2])},
            .data = {file_id{at.file}, tensor.offset + (expert * parts + part) * bytes, bytes}};
  }

  [[nodiscard]] static std::string shape(found const& at) {
    std::string text;
    for (std::uint64_t const dim : at.tensor->dims) {
      text += (text.empty() ? "" : " x ") + std::to_string(dim);
    }
    return text;
  }
  [[noreturn]] void refuse(found const& at, std::string const& rest) const {
    throw format_error{set_.files[at.file].string() + ": tensor " + in_quotes(at.tensor->name) +
                       " " + rest};
  }

  gguf_set const& set_;
  block_list& blocks_;
  std::unordered_map<std::string_view, found> by_name_;
  std::unordered_map<gguf_tensor const*, std::vector<float>> multipliers_;
  std::unordered_set<gguf_tensor const*> consumed_;
  std::map<layer_id, expert_stacks> stacks_;
};

}  // namespace terrace::format::detail
