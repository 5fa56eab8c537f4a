// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/block.hpp>
#include <terrace/core/error.hpp>
#include <terrace/format/detail/block_list.hpp>
#include <terrace/format/detail/safetensors_matrix.hpp>
#include <terrace/format/detail/tensor_names.hpp>
#include <terrace/format/detail/text.hpp>
#include <terrace/format/safetensors.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace terrace::format::detail {

/// Turns the tensors of a safetensors model into blocks. A quantised matrix and its scales, which
/// are tensors of their own here, become one matrix of one block; the experts of a layer become one
/// block each.
class safetensors_block_builder {
 public:
  safetensors_block_builder(std::span<std::filesystem::path const> paths,
                            std::span<safetensors_file const> files,
                            block_list& blocks)
      : paths_{paths}, files_{files}, blocks_{blocks}, matrices_{paths} {}

  void build() {
    for (std::uint32_t file = 0; file < files_.size(); ++file) {
      for (safetensors_tensor const& tensor : files_[file].tensors) { sort_out({&tensor, file}); }
    }
    name_gates();
    for (dense_parts const& dense : dense_) { add_dense(dense); }
    for (auto const& [layer, experts] : experts_) { add_experts(layer_id{layer}, experts); }
    for (auto const& [layer, stacks] : stacks_) { add_stacks(layer_id{layer}, stacks); }
  }

 private:
  struct dense_parts {
    std::string name;
    matrix_parts parts;
    bool known = false;  ///< the name has a meaning
  };
  struct expert_parts {
    matrix_parts gate, up, down, gate_up;
    matrix_parts& of(expert_role role) noexcept {
      switch (role) {
        case expert_role::gate:
          return gate;
        case expert_role::up:
          return up;
        case expert_role::gate_up:
          return gate_up;
        default:
          return down;
      }
    }
  };

  void sort_out(stored_tensor const& at) {
    auto const target = target_of(at.tensor->name);
    if (!target || target->part == tensor_part::ignored || target->part == tensor_part::shape) {
      return;
    }
    if (target->role == expert_role::none) {
      auto const [slot, fresh] = dense_index_.emplace(target->name, dense_.size());
      if (fresh) { dense_.push_back({target->name, {}, target->known}); }
      put(dense_[slot->second].parts, target->part, at);
    } else if (target->expert) {
      put(experts_[target->layer][*target->expert].of(target->role), target->part, at);
    } else {
      put(stacks_[target->layer].of(target->role), target->part, at);
    }
  }
  void put(matrix_parts& parts, tensor_part part, stored_tensor const& at) const {
    std::optional<stored_tensor>& slot = part == tensor_part::weight   ? parts.weight
                                         : part == tensor_part::packed ? parts.packed
                                         : part == tensor_part::scale  ? parts.scale
                                                                       : parts.unsupported;
    if (slot && part != tensor_part::unsupported) {
      matrices_.refuse(at,
                       "stands for the same part of the model as " + in_quotes(slot->tensor->name) +
                           " in " + paths_[slot->file].filename().string() +
                           "; the files mix two models");
    }
    slot = at;
  }

  /// The output gate of a recurrent layer takes GGUF's name for it: a layer is recurrent when it
  /// has a decay.
  void name_gates() {
    constexpr std::string_view gate = ".attn_gate.weight";
    for (dense_parts& dense : dense_) {
      if (!dense.name.ends_with(gate)) { continue; }
      std::string const block = dense.name.substr(0, dense.name.size() - gate.size());
      if (dense_index_.contains(block + ".ssm_a_log")) { dense.name = block + ".ssm_g.weight"; }
    }
  }

  void add_dense(dense_parts const& dense) {
    std::string const source = source_of(dense.parts);
    try {
      blocks_.add_dense(source, matrices_.assemble(dense.name, dense.parts));
    } catch (error const&) {
      // A tensor that means nothing here may be of any kind; it is left out when it cannot be read.
      if (dense.known) { throw; }
    }
  }

  void add_experts(layer_id layer, std::map<std::uint32_t, expert_parts> const& experts) {
    std::optional<stored_expert> first;
    std::uint32_t next = 0;
    for (auto const& [number, parts] : experts) {
      if (number != next) { missing(layer, next, "every tensor"); }
      ++next;
      stored_expert expert{.gate = part(layer, number, expert_role::gate, parts.gate),
                           .up = part(layer, number, expert_role::up, parts.up),
                           .down = part(layer, number, expert_role::down, parts.down)};
      std::string const source = source_of(parts.down);
      check_expert(source, layer, number, expert, first ? *first : expert);
      if (!first) { first = expert; }
      blocks_.add_expert(source, layer, std::move(expert));
    }
  }
  stored_matrix part(layer_id layer,
                     std::uint32_t expert,
                     expert_role role,
                     matrix_parts const& parts) const {
    std::string name = stack_title(layer, role);
    if (!parts.weight && !parts.packed && !parts.scale) {
      missing(layer, expert, in_quotes(name).c_str());
    }
    return matrices_.assemble(std::move(name), parts);
  }
  [[nodiscard]] static std::string stack_title(layer_id layer, expert_role role) {
    return "blk." + std::to_string(static_cast<std::uint32_t>(layer)) + "." +
           std::string{stack_name(role)};
  }

  static void check_expert(std::string const& source,
                           layer_id layer,
                           std::uint32_t number,
                           stored_expert const& expert,
                           stored_expert const& first) {
    auto const check = [&](stored_matrix const& matrix, std::uint64_t rows, std::uint64_t cols) {
      if (matrix.layout.rows == rows && matrix.layout.cols == cols) { return; }
      throw format_error{source + ": expert " + std::to_string(number) + " of layer " +
                         std::to_string(static_cast<std::uint32_t>(layer)) + " has " +
                         std::to_string(matrix.layout.rows) + " x " +
                         std::to_string(matrix.layout.cols) + " values for its part of " +
                         in_quotes(matrix.name) + " where " + std::to_string(rows) + " x " +
                         std::to_string(cols) + " are needed; the file is damaged"};
    };
    std::uint64_t const width = first.gate.layout.rows;
    std::uint64_t const inputs = first.gate.layout.cols;
    check(expert.gate, width, inputs);
    check(expert.up, width, inputs);
    check(expert.down, inputs, width);
  }

  /// Stacks of all experts of a layer, as transformers 5 writes them.
  void add_stacks(layer_id layer, expert_parts const& parts) {
    bool const singly = experts_.contains(static_cast<std::uint32_t>(layer));
    if (singly || any_of(parts.gate) || any_of(parts.up)) {
      matrices_.refuse(first_of(parts),
                       "stands beside the same experts in another arrangement, which is not read");
    }
    stored_tensor const gate_up = stack(layer, expert_role::gate_up, parts.gate_up);
    stored_tensor const down = stack(layer, expert_role::down, parts.down);
    auto const& in = gate_up.tensor->shape;
    auto const& out = down.tensor->shape;
    if (in[0] != out[0] || in[1] != 2 * out[2] || in[2] != out[1]) {
      matrices_.refuse(gate_up,
                       "of shape [" + matrix_reader::text_of(in) + "] does not fit " +
                           in_quotes(down.tensor->name) + " of shape [" +
                           matrix_reader::text_of(out) + "]");
    }
    for (std::uint64_t expert = 0; expert < out[0]; ++expert) {
      blocks_.add_expert(
          paths_[down.file].string(),
          layer,
          {.gate = slice(stack_title(layer, expert_role::gate), gate_up, 2 * expert, 2),
           .up = slice(stack_title(layer, expert_role::up), gate_up, 2 * expert + 1, 2),
           .down = slice(stack_title(layer, expert_role::down), down, expert, 1)});
    }
  }
  stored_tensor stack(layer_id layer, expert_role role, matrix_parts const& parts) const {
    if (!parts.weight) { missing(layer, 0, in_quotes(stack_title(layer, role)).c_str()); }
    bool const scaled = parts.weight->tensor->dtype == safetensors_dtype::f8_e4m3;
    if (scaled || parts.scale || parts.packed || parts.unsupported) {
      throw not_supported{matrices_.where(*parts.weight) +
                          " is a quantised stack of experts, which is not read"};
    }
    stored_tensor const at = *parts.weight;
    if (at.tensor->shape.size() != 3 || at.tensor->bytes == 0) {
      matrices_.refuse(at,
                       "has shape [" + matrix_reader::text_of(at.tensor->shape) +
                           "]; a stack of experts has 3 dimensions");
    }
    return at;
  }
  /// Slice `number` of the stack cut into `parts` per expert.
  stored_matrix slice(std::string name,
                      stored_tensor const& at,
                      std::uint64_t number,
                      std::uint64_t parts) const {
    auto const& shape = at.tensor->shape;
    std::uint64_t const bytes = at.tensor->bytes / shape[0] / parts;
    return {.name = std::move(name),
            .layout = {.type = matrices_.type_of(at), .rows = shape[1] / parts, .cols = shape[2]},
            .data = {file_id{at.file}, at.tensor->offset + number * bytes, bytes}};
  }

  [[nodiscard]] static stored_tensor first_of(expert_parts const& parts) noexcept {
    for (auto const* matrix : {&parts.gate, &parts.up, &parts.down, &parts.gate_up}) {
      if (auto const at = any_of(*matrix)) { return *at; }
    }
    return {};
  }
  [[nodiscard]] std::string source_of(matrix_parts const& parts) const {
    return paths_[any_of(parts)->file].string();
  }
  [[noreturn]] void missing(layer_id layer, std::uint32_t expert, char const* what) const {
    throw format_error{paths_.front().parent_path().string() + ": expert " +
                       std::to_string(expert) + " of layer " +
                       std::to_string(static_cast<std::uint32_t>(layer)) + " lacks " + what +
                       "; the model is incomplete, get it again"};
  }

  std::span<std::filesystem::path const> paths_;
  std::span<safetensors_file const> files_;
  block_list& blocks_;
  matrix_reader matrices_;
  std::vector<dense_parts> dense_;
  std::unordered_map<std::string, std::size_t> dense_index_;
  std::map<std::uint32_t, std::map<std::uint32_t, expert_parts>> experts_;
  std::map<std::uint32_t, expert_parts> stacks_;
};

}  // namespace terrace::format::detail
