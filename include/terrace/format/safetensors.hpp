// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/error.hpp>
#include <terrace/format/byte_source.hpp>
#include <terrace/format/detail/json_text.hpp>
#include <terrace/format/detail/text.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace terrace::format {

/// Element types of safetensors.
enum class safetensors_dtype : std::uint8_t {
  boolean,
  f4,
  f6_e2m3,
  f6_e3m2,
  u8,
  i8,
  f8_e5m2,
  f8_e4m3,
  f8_e8m0,
  i16,
  u16,
  f16,
  bf16,
  i32,
  u32,
  f32,
  c64,
  f64,
  i64,
  u64,
};

struct safetensors_dtype_traits {
  safetensors_dtype type;
  std::string_view name;  ///< as in the file
  std::uint32_t bits;
};
inline constexpr std::array<safetensors_dtype_traits, 20> safetensors_dtypes{{
    {safetensors_dtype::boolean, "BOOL", 8},    {safetensors_dtype::f4, "F4", 4},
    {safetensors_dtype::f6_e2m3, "F6_E2M3", 6}, {safetensors_dtype::f6_e3m2, "F6_E3M2", 6},
    {safetensors_dtype::u8, "U8", 8},           {safetensors_dtype::i8, "I8", 8},
    {safetensors_dtype::f8_e5m2, "F8_E5M2", 8}, {safetensors_dtype::f8_e4m3, "F8_E4M3", 8},
    {safetensors_dtype::f8_e8m0, "F8_E8M0", 8}, {safetensors_dtype::i16, "I16", 16},
    {safetensors_dtype::u16, "U16", 16},        {safetensors_dtype::f16, "F16", 16},
    {safetensors_dtype::bf16, "BF16", 16},      {safetensors_dtype::i32, "I32", 32},
    {safetensors_dtype::u32, "U32", 32},        {safetensors_dtype::f32, "F32", 32},
    {safetensors_dtype::c64, "C64", 64},        {safetensors_dtype::f64, "F64", 64},
    {safetensors_dtype::i64, "I64", 64},        {safetensors_dtype::u64, "U64", 64},
}};
[[nodiscard]] constexpr std::optional<safetensors_dtype_traits> find_dtype(
    std::string_view name) noexcept {
  for (auto const& entry : safetensors_dtypes) {
    if (entry.name == name) { return entry; }
  }
  return std::nullopt;
}
[[nodiscard]] constexpr std::string_view name_of(safetensors_dtype type) noexcept {
  return safetensors_dtypes[static_cast<std::size_t>(type)].name;
}

/// One tensor of a safetensors file; row-major, the last dimension runs fastest.
struct safetensors_tensor {
  std::string name;
  safetensors_dtype dtype = safetensors_dtype::f32;
  std::vector<std::uint64_t> shape;  ///< none for a scalar
  std::uint64_t offset = 0;          ///< bytes from the start of the file
  std::uint64_t bytes = 0;
};

/// The header of one safetensors file.
struct safetensors_file {
  std::vector<safetensors_tensor> tensors;  ///< by ascending offset
};

namespace detail {

class safetensors_parser {
 public:
  explicit safetensors_parser(byte_source const& source) : source_{source} {}

  safetensors_file parse() {
    json const header = read_header();
    if (!header.is_object()) { refuse("the header is not a JSON object"); }
    for (auto const& [name, value] : header.items()) {
      if (name == "__metadata__") {
        check_metadata(value);
      } else {
        file_.tensors.push_back(read_tensor(name, value));
      }
    }
    check_cover();
    return std::move(file_);
  }

 private:
  [[noreturn]] void refuse(std::string const& rest) const {
    throw format_error{source_.name() + ": " + rest};
  }
  [[noreturn]] void refuse_tensor(std::string const& name, std::string const& rest) const {
    refuse("tensor " + in_quotes(name) + " " + rest);
  }

  json read_header() {
    std::uint64_t const size = source_.size_bytes();
    if (size < 8) {
      refuse("too short for a safetensors file (" + std::to_string(size) + " bytes); get it again");
    }
    std::uint64_t length = 0;
    source_.read(0, std::as_writable_bytes(std::span{&length, 1}));
    if (length > json_limit_bytes) {
      refuse("the header claims " + std::to_string(length) + " bytes, more than the " +
             std::to_string(json_limit_bytes) +
             " that are allowed; this is not a safetensors file or it is damaged");
    }
    if (length > size - 8) {
      refuse("the header claims " + std::to_string(length) + " bytes but the file has only " +
             std::to_string(size) + "; it is cut off, get it again");
    }
    std::string text(static_cast<std::size_t>(length), '\0');
    source_.read(8, std::as_writable_bytes(std::span{text}));
    data_offset_ = 8 + length;
    return parse_json(text, source_.name());
  }

  void check_metadata(json const& value) const {
    if (value.is_null()) { return; }
    if (!value.is_object()) { refuse("`__metadata__` is neither an object nor null"); }
    for (auto const& [key, text] : value.items()) {
      if (!text.is_string()) {
        refuse("`__metadata__` has a value that is no string under " + in_quotes(key));
      }
    }
  }

  safetensors_tensor read_tensor(std::string const& name, json const& value) const {
    if (!value.is_object()) { refuse_tensor(name, "is not described by an object"); }
    for (char const* const field : {"dtype", "shape", "data_offsets"}) {
      if (!value.contains(field)) {
        refuse_tensor(name, std::string{"has no `"} + field + "`; the file is damaged");
      }
    }
    auto const& dtype = value["dtype"];
    if (!dtype.is_string()) { refuse_tensor(name, "has a `dtype` that is not a string"); }
    auto const traits = find_dtype(dtype.get_ref<std::string const&>());
    if (!traits) {
      refuse_tensor(
          name,
          "has dtype " + in_quotes(dtype.get_ref<std::string const&>()) + ", which is not known");
    }
    safetensors_tensor tensor{
        .name = name, .dtype = traits->type, .shape = numbers(name, value, "shape")};
    auto const range = numbers(name, value, "data_offsets");
    std::uint64_t const room = source_.size_bytes() - data_offset_;
    if (range.size() != 2 || range[0] > range[1]) {
      refuse_tensor(name, "has `data_offsets` that are not a begin and an end after it");
    }
    if (range[1] > room) {
      refuse_tensor(name,
                    "ends at byte " + std::to_string(range[1]) + " of a data section of " +
                        std::to_string(room) +
                        " bytes; the file is cut off or damaged, get it again");
    }
    tensor.offset = data_offset_ + range[0];
    tensor.bytes = range[1] - range[0];
    check_size(tensor, traits->bits);
    return tensor;
  }

  std::vector<std::uint64_t> numbers(std::string const& name,
                                     json const& value,
                                     char const* field) const {
    std::vector<std::uint64_t> list;
    auto const& array = value[field];
    if (!array.is_array()) {
      refuse_tensor(name, std::string{"has a `"} + field + "` that is not an array");
    }
    for (auto const& entry : array) {
      if (!entry.is_number_unsigned()) {
        refuse_tensor(
            name,
            std::string{"has `"} + field + "` entries that are not whole numbers from 0 to 2^64-1");
      }
      list.push_back(entry.get<std::uint64_t>());
    }
    return list;
  }

  void check_size(safetensors_tensor const& tensor, std::uint32_t bits) const {
    std::uint64_t total_bits = bits;
    std::string shape;
    bool fits = true;
    for (std::uint64_t const dim : tensor.shape) {
      auto const product = checked_product(total_bits, dim);
      fits = fits && product.has_value();
      total_bits = product.value_or(0);
      shape += (shape.empty() ? "" : " x ") + std::to_string(dim);
    }
    if (!fits) {
      refuse_tensor(tensor.name, "has dimensions whose product does not fit: " + shape);
    }
    if (total_bits % 8 != 0 || total_bits / 8 != tensor.bytes) {
      refuse_tensor(tensor.name,
                    "of shape [" + shape + "] and dtype " + std::string{name_of(tensor.dtype)} +
                        " needs " + std::to_string(total_bits / 8) +
                        " bytes but `data_offsets` span " + std::to_string(tensor.bytes) +
                        "; the file is damaged");
    }
  }

  /// Every byte of the data section belongs to exactly one tensor.
  void check_cover() {
    std::sort(file_.tensors.begin(), file_.tensors.end(), [](auto const& a, auto const& b) {
      return std::pair{a.offset, a.bytes} < std::pair{b.offset, b.bytes};
    });
    std::uint64_t end = data_offset_;
    for (safetensors_tensor const& tensor : file_.tensors) {
      if (tensor.offset < end) {
        refuse_tensor(tensor.name,
                      "overlaps the tensor before it by " + std::to_string(end - tensor.offset) +
                          " bytes; the file is damaged");
      }
      if (tensor.offset > end) { refuse_hole(end, tensor.offset); }
      end = tensor.offset + tensor.bytes;
    }
    if (end != source_.size_bytes()) { refuse_hole(end, source_.size_bytes()); }
  }
  [[noreturn]] void refuse_hole(std::uint64_t begin, std::uint64_t end) const {
    refuse("bytes " + std::to_string(begin) + " to " + std::to_string(end) +
           " of the file belong to no tensor; the file is damaged, get it again");
  }

  byte_source const& source_;
  std::uint64_t data_offset_ = 0;
  safetensors_file file_;
};

}  // namespace detail

/// Reads and checks the header of one safetensors file. Tensor data is not read.
///
/// Errors: format_error naming the file, the tensor and the numbers; io_error when reading fails.
/// Cost:   reads the header once.
/// Source: the format description of huggingface/safetensors.
[[nodiscard]] inline safetensors_file read_safetensors(byte_source const& source) {
  return detail::safetensors_parser{source}.parse();
}

}  // namespace terrace::format
