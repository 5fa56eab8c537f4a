// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/error.hpp>
#include <terrace/core/quant_type.hpp>
#include <terrace/format/byte_source.hpp>
#include <terrace/format/gguf_set.hpp>
#include <terrace/quant/decode.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace terrace::quant_check {

/// What became of all tensors of one type.
struct type_result {
  std::size_t passed = 0;
  std::uint64_t values = 0;
  std::vector<std::string> failures;  ///< one sentence a tensor
};

/// Compares the tensors `X.quantised` of a GGUF file with their twins `X.dequantised`: every value
/// decoded must have the bits of the stored float32 (any NaN equals any other).
class checker {
 public:
  /// Errors: format_error or io_error when the file is broken.
  explicit checker(std::filesystem::path const& named) : set_{format::read_gguf_set(named)} {
    for (std::size_t file = 0; file < set_.files.size(); ++file) {
      for (auto const& tensor : set_.headers[file].tensors) {
        by_name_.emplace(tensor.name, found{&tensor, file});
      }
    }
  }

  /// Results by type, in the order of type ids.
  [[nodiscard]] std::map<quant_type, type_result> run() const {
    std::map<quant_type, type_result> results;
    for (auto const& [name, quantised] : by_name_) {
      if (!name.ends_with(suffix)) { continue; }
      type_result& result = results[quantised.tensor->type];
      result.values += quantised.tensor->bytes / traits_of(quantised.tensor->type).block_bytes *
                       traits_of(quantised.tensor->type).block_elements;
      auto const twin =
          by_name_.find(std::string{name.substr(0, name.size() - suffix.size())} + ".dequantised");
      std::string failure = twin == by_name_.end() ? "has no `.dequantised` twin in the file"
                                                   : compare(quantised, twin->second);
      if (failure.empty()) {
        ++result.passed;
      } else {
        result.failures.push_back(fmt::format("`{}` {}", name, failure));
      }
    }
    return results;
  }

 private:
  static constexpr std::string_view suffix = ".quantised";

  struct found {
    format::gguf_tensor const* tensor = nullptr;
    std::size_t file = 0;
  };

  /// What differs, in words; nothing if the tensors agree.
  [[nodiscard]] std::string compare(found const& quantised, found const& twin) const {
    auto const& from = *quantised.tensor;
    auto const& to = *twin.tensor;
    if (to.type != quant_type::f32) {
      return fmt::format("has a twin of type {}, not f32", name_of(to.type));
    }
    if (from.dims != to.dims) { return "has a twin of another shape"; }

    std::uint64_t const cols = from.dims.empty() ? 1 : from.dims[0];
    std::uint64_t const rows = to.bytes / sizeof(float) / cols;
    format::file_source const source{set_.files[quantised.file]};
    format::file_source const twin_source{set_.files[twin.file]};
    std::vector<std::byte> blocks(row_bytes(from.type, cols));
    std::vector<float> decoded(cols);
    std::vector<float> expected(cols);
    std::uint64_t differ = 0;
    std::string first;
    for (std::uint64_t row = 0; row < rows; ++row) {
      source.read(from.offset + row * blocks.size(), blocks);
      twin_source.read(to.offset + row * cols * sizeof(float),
                       std::as_writable_bytes(std::span{expected}));
      quant::decode_blocks(from.type, blocks.data(), cols, decoded.data());
      for (std::uint64_t i = 0; i < cols; ++i) {
        if (same(decoded[i], expected[i])) { continue; }
        if (differ++ == 0) {
          first = fmt::format(
              "row {} column {} decodes to {}, expected {}", row, i, decoded[i], expected[i]);
        }
      }
    }
    return differ == 0 ? "" : fmt::format("{} (values that differ: {})", first, differ);
  }

  [[nodiscard]] static bool same(float a, float b) noexcept {
    return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b) ||
           (std::isnan(a) && std::isnan(b));
  }

  format::gguf_set set_;
  std::map<std::string, found, std::less<>> by_name_;
};

}  // namespace terrace::quant_check
