// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/block.hpp>
#include <terrace/core/error.hpp>
#include <terrace/format/detail/block_list.hpp>
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
      : paths_{paths}, files_{files}, blocks_{blocks} {}

  void build() {
    for (std::uint32_t file = 0; file < files_.size(); ++file) {
      for (safetensors_tensor const& tensor : files_[file].tensors) { sort_out({&tensor, file}); }
    }
    for (auto const& [name, parts] : dense_) { add_dense(name, parts); }
    for (auto const& [layer, experts] : experts_) { add_experts(layer_id{layer}, experts); }
    for (auto const& [layer, stacks] : stacks_) { add_stacks(layer_id{layer}, stacks); }
  }

 private:
  struct found {
    safetensors_tensor const* tensor = nullptr;
    std::uint32_t file = 0;
  };
  /// The tensors that make one matrix: `weight` or `packed`, and for some types `scale`.
  struct matrix_parts {
    std::optional<found> weight, packed, scale, unsupported;
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

  // ---- grouping
  // ----------------------------------------------------------------------------------------------------

  void sort_out(found const& at) {
    auto const target = target_of(at.tensor->name);
    if (!target || target->part == tensor_part::ignored || target->part == tensor_part::shape) {
      return;
    }
    if (target->role == expert_role::none) {
      auto const [slot, fresh] = dense_index_.emplace(target->name, dense_.size());
      if (fresh) { dense_.emplace_back(target->name, matrix_parts{}); }
      put(dense_[slot->second].second, target->part, at);
    } else if (target->expert) {
      put(experts_[target->layer][*target->expert].of(target->role), target->part, at);
    } else {
      put(stacks_[target->layer].of(target->role), target->part, at);
    }
  }
  void put(matrix_parts& parts, tensor_part part, found const& at) const {
    std::optional<found>& slot = part == tensor_part::weight   ? parts.weight
                                 : part == tensor_part::packed ? parts.packed
                                 : part == tensor_part::scale  ? parts.scale
                                                               : parts.unsupported;
    if (slot && part != tensor_part::unsupported) {
      refuse(at,
             "stands for the same part of the model as " + in_quotes(slot->tensor->name) + " in " +
                 paths_[slot->file].filename().string() + "; the files mix two models");
    }
    slot = at;
  }

  // ---- one matrix
  // --------------------------------------------------------------------------------------------------

  stored_matrix assemble(std::string name, matrix_parts const& parts) const {
    if (parts.unsupported) {
      throw not_supported{where(*parts.unsupported) +
                          " belongs to a quantisation that is not read (zero points, reordered "
                          "groups or a global scale); use another version of the model"};
    }
    if (!parts.weight && !parts.packed) {
      refuse(*parts.scale, "is a scale without the weight it scales");
    }
    if (parts.weight && parts.packed) {
      refuse(*parts.packed, "stands beside an unpacked weight of the same name");
    }
    stored_matrix matrix =
        parts.packed ? packed(*parts.packed, parts.scale) : plain(*parts.weight, parts.scale);
    matrix.name = std::move(name);
    return matrix;
  }

  stored_matrix plain(found const& at, std::optional<found> const& scale) const {
    stored_matrix matrix;
    matrix.data = run_of(at);
    auto const& shape = at.tensor->shape;
    matrix.layout.cols = shape.empty() ? 1 : shape.back();
    matrix.layout.rows = 1;
    for (std::size_t i = 0; i + 1 < shape.size(); ++i) { matrix.layout.rows *= shape[i]; }
    if (at.tensor->bytes == 0) { refuse(at, "has a dimension of 0"); }
    matrix.layout.type = type_of(at);
    bool const scaled = matrix.layout.type == quant_type::fp8_e4m3;
    if (scaled && !scale) {
      refuse(at, "is of type F8_E4M3 but has no scale tensor beside it; the model is incomplete");
    }
    if (!scaled && scale) {
      throw not_supported{
          where(*scale) + " scales a weight of type " + std::string{name_of(at.tensor->dtype)} +
          "; only F8_E4M3 weights, packed INT4 and packed MXFP4 have scales that are read"};
    }
    if (scaled) { attach_fp8_scale(matrix, at, *scale); }
    return matrix;
  }

  quant_type type_of(found const& at) const {
    switch (at.tensor->dtype) {
      case safetensors_dtype::f32:
        return quant_type::f32;
      case safetensors_dtype::f16:
        return quant_type::f16;
      case safetensors_dtype::bf16:
        return quant_type::bf16;
      case safetensors_dtype::f64:
        return quant_type::f64;
      case safetensors_dtype::f8_e4m3:
        return quant_type::fp8_e4m3;
      case safetensors_dtype::i8:
      case safetensors_dtype::u8:
        return quant_type::i8;
      case safetensors_dtype::i16:
        return quant_type::i16;
      case safetensors_dtype::i32:
        return quant_type::i32;
      case safetensors_dtype::i64:
        return quant_type::i64;
      default:
        throw not_supported{where(at) + " is of type " + std::string{name_of(at.tensor->dtype)} +
                            ", which is not read; use another version of the model"};
    }
  }

  void attach_fp8_scale(stored_matrix& matrix, found const& at, found const& scale) const {
    std::uint64_t const rows = matrix.layout.rows;
    std::vector<std::uint64_t> const block_shape{(rows + 127) / 128,
                                                 (matrix.layout.cols + 127) / 128};
    auto const& shape = scale.tensor->shape;
    std::uint64_t count = 1;
    for (std::uint64_t const dim : shape) { count *= dim; }
    if (count == 1) {
      matrix.layout.grid = scale_grid::per_tensor;
    } else if (shape == std::vector<std::uint64_t>{rows} ||
               shape == std::vector<std::uint64_t>{rows, 1}) {
      matrix.layout.grid = scale_grid::per_row;
    } else if (at.tensor->shape.size() == 2 && shape == block_shape) {
      matrix.layout.grid = scale_grid::per_block128;
    } else {
      refuse(scale,
             "has shape [" + text_of(shape) +
                 "], which is neither one scale, nor one per row, nor one per 128 x 128 "
                 "block of a weight of shape [" +
                 text_of(at.tensor->shape) + "]");
    }
    attach_scale(matrix, scale);
  }

  void attach_scale(stored_matrix& matrix, found const& scale) const {
    switch (scale.tensor->dtype) {
      case safetensors_dtype::f32:
        matrix.layout.scale_type = quant_type::f32;
        break;
      case safetensors_dtype::f16:
        matrix.layout.scale_type = quant_type::f16;
        break;
      case safetensors_dtype::bf16:
        matrix.layout.scale_type = quant_type::bf16;
        break;
      default:
        throw not_supported{where(scale) + " is a scale of type " +
                            std::string{name_of(scale.tensor->dtype)} +
                            "; F32, F16 and BF16 are read"};
    }
    matrix.scales = run_of(scale);
  }

  /// INT4 in int32 words or MXFP4 in bytes, one scale per 32 columns. The logical shape follows
  /// from the packed one, so the `weight_shape` tensor is not read: it would cost one tiny read per
  /// matrix.
  stored_matrix packed(found const& at, std::optional<found> const& scale) const {
    bool const int4 = at.tensor->dtype == safetensors_dtype::i32;
    if (!int4 && at.tensor->dtype != safetensors_dtype::u8) {
      throw not_supported{where(at) + " is packed in type " +
                          std::string{name_of(at.tensor->dtype)} +
                          "; I32 (INT4) and U8 (MXFP4) are read"};
    }
    if (!scale) { refuse(at, "has no `weight_scale` beside it; the model is incomplete"); }
    auto const& shape = at.tensor->shape;
    std::uint64_t const per_word = int4 ? 8 : 2;
    if (shape.size() != 2 || at.tensor->bytes == 0 || scale->tensor->shape.size() != 2 ||
        scale->tensor->shape[0] != shape[0] ||
        scale->tensor->shape[1] * 32 != shape[1] * per_word) {
      throw not_supported{where(at) + " of shape [" + text_of(shape) + "] with scales of shape [" +
                          text_of(scale->tensor->shape) + "] is not " + (int4 ? "INT4" : "MXFP4") +
                          " with one scale per 32 columns, the only packing that is read"};
    }
    stored_matrix matrix;
    matrix.data = run_of(at);
    matrix.layout.rows = shape[0];
    matrix.layout.cols = shape[1] * per_word;
    matrix.layout.type = int4 ? quant_type::int4_g32 : quant_type::mxfp4_packed;
    matrix.layout.grid = scale_grid::per_group32;
    if (int4) {
      attach_scale(matrix, *scale);
      return matrix;
    }
    auto const dtype = scale->tensor->dtype;
    if (dtype != safetensors_dtype::u8 && dtype != safetensors_dtype::f8_e8m0) {
      throw not_supported{where(*scale) + " is a scale of type " + std::string{name_of(dtype)} +
                          "; packed MXFP4 has U8 (E8M0) scales"};
    }
    matrix.layout.scale_type = quant_type::i8;
    matrix.scales = run_of(*scale);
    return matrix;
  }

  // ---- blocks
  // ------------------------------------------------------------------------------------------------------

  void add_dense(std::string const& name, matrix_parts const& parts) {
    blocks_.add_dense(source_of(parts), assemble(name, parts));
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
    return assemble(std::move(name), parts);
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
    if (experts_.contains(static_cast<std::uint32_t>(layer))) {
      refuse(any_of(parts), "stands beside the same experts one by one; the files mix two models");
    }
    found const gate_up = stack(layer, expert_role::gate_up, parts.gate_up);
    found const down = stack(layer, expert_role::down, parts.down);
    auto const& in = gate_up.tensor->shape;
    auto const& out = down.tensor->shape;
    if (in[0] != out[0] || in[1] != 2 * out[2] || in[2] != out[1]) {
      refuse(gate_up,
             "of shape [" + text_of(in) + "] does not fit " + in_quotes(down.tensor->name) +
                 " of shape [" + text_of(out) + "]");
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
  found stack(layer_id layer, expert_role role, matrix_parts const& parts) const {
    if (!parts.weight) { missing(layer, 0, in_quotes(stack_title(layer, role)).c_str()); }
    if (parts.scale || parts.packed || parts.unsupported) {
      throw not_supported{where(*parts.weight) +
                          " is a quantised stack of experts, which is not read"};
    }
    found const at = *parts.weight;
    if (at.tensor->shape.size() != 3 || at.tensor->bytes == 0) {
      refuse(at,
             "has shape [" + text_of(at.tensor->shape) + "]; a stack of experts has 3 dimensions");
    }
    return at;
  }
  /// Slice `number` of the stack cut into `parts` per expert.
  stored_matrix slice(std::string name,
                      found const& at,
                      std::uint64_t number,
                      std::uint64_t parts) const {
    auto const& shape = at.tensor->shape;
    std::uint64_t const bytes = at.tensor->bytes / shape[0] / parts;
    return {.name = std::move(name),
            .layout = {.type = type_of(at), .rows = shape[1] / parts, .cols = shape[2]},
            .data = {file_id{at.file}, at.tensor->offset + number * bytes, bytes}};
  }

  // ---- sentences
  // ---------------------------------------------------------------------------------------------------

  [[nodiscard]] static extent run_of(found const& at) noexcept {
    return {file_id{at.file}, at.tensor->offset, at.tensor->bytes};
  }
  [[nodiscard]] static std::optional<found> any_of(matrix_parts const& parts) noexcept {
    return parts.weight   ? parts.weight
           : parts.packed ? parts.packed
           : parts.scale  ? parts.scale
                          : parts.unsupported;
  }
  [[nodiscard]] static found any_of(expert_parts const& parts) noexcept {
    for (auto const* matrix : {&parts.gate, &parts.up, &parts.down, &parts.gate_up}) {
      if (auto const at = any_of(*matrix)) { return *at; }
    }
    return {};
  }
  [[nodiscard]] std::string source_of(matrix_parts const& parts) const {
    return paths_[any_of(parts)->file].string();
  }
  [[nodiscard]] std::string where(found const& at) const {
    return paths_[at.file].string() + ": tensor " + in_quotes(at.tensor->name);
  }
  [[nodiscard]] static std::string text_of(std::vector<std::uint64_t> const& shape) {
    std::string text;
    for (std::uint64_t const dim : shape) {
      text += (text.empty() ? "" : ", ") + std::to_string(dim);
    }
    return text;
  }
  [[noreturn]] void refuse(found const& at, std::string const& rest) const {
    throw format_error{where(at) + " " + rest};
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
  std::vector<std::pair<std::string, matrix_parts>> dense_;
  std::unordered_map<std::string, std::size_t> dense_index_;
  std::map<std::uint32_t, std::map<std::uint32_t, expert_parts>> experts_;
  std::map<std::uint32_t, expert_parts> stacks_;
};

}  // namespace terrace::format::detail
