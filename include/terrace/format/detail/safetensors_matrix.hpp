// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/block.hpp>
#include <terrace/core/error.hpp>
#include <terrace/format/detail/block_list.hpp>
#include <terrace/format/detail/text.hpp>
#include <terrace/format/safetensors.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace terrace::format::detail {

/// A tensor and the index of its file.
struct stored_tensor {
  safetensors_tensor const* tensor = nullptr;
  std::uint32_t file = 0;
};

/// The tensors that make one matrix: `weight` or `packed`, and for some types `scale`.
struct matrix_parts {
  std::optional<stored_tensor> weight, packed, scale, unsupported;
};

[[nodiscard]] inline std::optional<stored_tensor> any_of(matrix_parts const& parts) noexcept {
  if (parts.weight) { return parts.weight; }
  if (parts.packed) { return parts.packed; }
  return parts.scale ? parts.scale : parts.unsupported;
}

/// Turns the tensors of one matrix into its layout and the runs that hold its data and scales.
class matrix_reader {
 public:
  /// `paths`: the files, for error sentences.
  explicit matrix_reader(std::span<std::filesystem::path const> paths) : paths_{paths} {}

  /// Errors: format_error when parts are missing or disagree; not_supported for encodings that are
  /// not read.
  [[nodiscard]] stored_matrix assemble(std::string name, matrix_parts const& parts) const {
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

  /// Integers are no weights: whoever stores them so keeps scales under names unknown here.
  [[nodiscard]] quant_type type_of(stored_tensor const& at) const {
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
      default:
        throw not_supported{where(at) + " is of type " + std::string{name_of(at.tensor->dtype)} +
                            ", which no weight is read in; use another version of the model"};
    }
  }

  [[nodiscard]] std::string where(stored_tensor const& at) const {
    return paths_[at.file].string() + ": tensor " + in_quotes(at.tensor->name);
  }
  [[nodiscard]] static std::string text_of(std::vector<std::uint64_t> const& shape) {
    std::string text;
    for (std::uint64_t const dim : shape) {
      text += (text.empty() ? "" : ", ") + std::to_string(dim);
    }
    return text;
  }
  [[noreturn]] void refuse(stored_tensor const& at, std::string const& rest) const {
    throw format_error{where(at) + " " + rest};
  }

 private:
  stored_matrix plain(stored_tensor const& at, std::optional<stored_tensor> const& scale) const {
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

  void attach_fp8_scale(stored_matrix& matrix,
                        stored_tensor const& at,
                        stored_tensor const& scale) const {
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

  void attach_scale(stored_matrix& matrix, stored_tensor const& scale) const {
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
  stored_matrix packed(stored_tensor const& at, std::optional<stored_tensor> const& scale) const {
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

  [[nodiscard]] static extent run_of(stored_tensor const& at) noexcept {
    return {file_id{at.file}, at.tensor->offset, at.tensor->bytes};
  }

  std::span<std::filesystem::path const> paths_;
};

}  // namespace terrace::format::detail
