// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/error.hpp>
#include <terrace/core/metadata.hpp>
#include <terrace/core/quant_type.hpp>
#include <terrace/core/units.hpp>
#include <terrace/format/byte_source.hpp>
#include <terrace/format/detail/byte_reader.hpp>
#include <terrace/format/detail/text.hpp>
#include <terrace/format/detail/trailing_bytes.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_set>
#include <utility>
#include <vector>

namespace terrace::format {

/// Value types of GGUF metadata, by their ids in the file.
enum class gguf_value_type : std::uint32_t {
  u8,
  i8,
  u16,
  i16,
  u32,
  i32,
  f32,
  boolean,
  string,
  array,
  u64,
  i64,
  f64
};

/// One tensor of a GGUF file. `dims[0]` runs fastest: a matrix is {inputs, outputs}.
struct gguf_tensor {
  std::string name;
  quant_type type = quant_type::f32;
  std::vector<std::uint64_t> dims;  ///< up to four; none for a scalar
  std::uint64_t offset = 0;         ///< bytes from the start of the file
  std::uint64_t bytes = 0;
};

/// The header of one GGUF file: everything but the tensor data.
struct gguf_file {
  std::uint32_t version = 3;
  std::uint64_t alignment = 32;
  std::uint64_t data_offset = 0;  ///< where the data section starts
  metadata meta;
  std::vector<gguf_tensor> tensors;  ///< in file order
};

/// Largest header that is read; those of published models stay below 20 MiB.
inline constexpr std::uint64_t gguf_header_limit_bytes = 256 * mib;
inline constexpr std::uint64_t gguf_alignment_limit = 16 * mib;

namespace detail {

/// Why a tensor type id is refused, in words.
[[nodiscard]] inline std::string why_unknown(std::uint32_t id) {
  bool const removed = id == 4 || id == 5 || (id >= 31 && id <= 33) || (id >= 36 && id <= 38);
  if (removed) {
    return "was removed from the format; convert the model again with a current tool";
  }
  if (id >= 133) { return "belongs to a fork of the format; use a file in a mainline type"; }
  return "is not known; the file is damaged or newer than this reader";
}

class gguf_parser {
 public:
  explicit gguf_parser(byte_source const& source)
      : source_{source}, reader_{source, gguf_header_limit_bytes} {
    file_.meta = metadata{source.name()};
  }

  gguf_file parse() {
    read_preamble();
    for (std::uint64_t i = 0; i < key_count_; ++i) { read_key(); }
    read_alignment();
    for (std::uint64_t i = 0; i < tensor_count_; ++i) { read_tensor(); }
    header_end_ = reader_.position();
    file_.data_offset = round_up(header_end_, file_.alignment);
    place_tensors();
    check_trailing_bytes(source_, data_end_, file_.alignment);
    return std::move(file_);
  }

 private:
  static constexpr std::uint64_t longest_name = 65'535;
  static constexpr std::uint64_t smallest_key_bytes = 8 + 1 + 4 + 1;
  static constexpr std::uint64_t smallest_tensor_bytes = 8 + 1 + 4 + 4 + 8;

  [[noreturn]] void refuse(std::string const& rest) const {
    throw format_error{source_.name() + ": " + rest};
  }

  void read_preamble() {
    if (source_.size_bytes() == 0) { refuse("the file is empty; get it again"); }
    if (source_.size_bytes() < 4) { refuse("too short for a GGUF file; get it again"); }
    std::array<char, 4> magic;
    for (char& c : magic) { c = reader_.number<char>("the magic"); }
    if (std::string_view{magic.data(), 4} != "GGUF") {
      refuse("not a GGUF file: it begins with " + in_quotes({magic.data(), 4}) +
             " instead of `GGUF`");
    }
    file_.version = reader_.number<std::uint32_t>("the version");
    if ((file_.version & 0xFFFFU) == 0) {
      refuse(
          "the version field is byte-swapped, so this is a big-endian GGUF file; convert it for "
          "little-endian machines");
    }
    if (file_.version != 2 && file_.version != 3) {
      refuse("GGUF version " + std::to_string(file_.version) +
             "; versions 2 and 3 are read, convert the model again");
    }
    tensor_count_ = count("tensors", smallest_tensor_bytes);
    key_count_ = count("keys", smallest_key_bytes);
  }

  std::uint64_t count(char const* things, std::uint64_t smallest) {
    auto const value = reader_.number<std::uint64_t>("the header");
    if (value > reader_.remaining() / smallest) {
      refuse("the header claims " + std::to_string(value) + " " + things + " but only " +
             std::to_string(reader_.remaining()) +
             " bytes follow; the file is damaged or cut off, get it again");
    }
    return value;
  }

  void read_key() {
    std::string key = reader_.string(longest_name, "a metadata key");
    if (key.empty()) { refuse("a metadata key is empty"); }
    if (file_.meta.contains(key)) {
      refuse("the key " + in_quotes(key) + " occurs twice; the file is damaged");
    }
    auto const type = reader_.number<std::uint32_t>("a value type");
    file_.meta.set(key,
                   type == static_cast<std::uint32_t>(gguf_value_type::array)
                       ? read_array(key)
                       : read_value(key, type));
  }

  metadata_value read_value(std::string const& key, std::uint32_t type) {
    switch (static_cast<gguf_value_type>(type)) {
      case gguf_value_type::u8:
        return std::uint64_t{reader_.number<std::uint8_t>(value_text)};
      case gguf_value_type::u16:
        return std::uint64_t{reader_.number<std::uint16_t>(value_text)};
      case gguf_value_type::u32:
        return std::uint64_t{reader_.number<std::uint32_t>(value_text)};
      case gguf_value_type::u64:
        return reader_.number<std::uint64_t>(value_text);
      case gguf_value_type::i8:
        return std::int64_t{reader_.number<std::int8_t>(value_text)};
      case gguf_value_type::i16:
        return std::int64_t{reader_.number<std::int16_t>(value_text)};
      case gguf_value_type::i32:
        return std::int64_t{reader_.number<std::int32_t>(value_text)};
      case gguf_value_type::i64:
        return reader_.number<std::int64_t>(value_text);
      case gguf_value_type::f32:
        return double{reader_.number<float>(value_text)};
      case gguf_value_type::f64:
        return reader_.number<double>(value_text);
      case gguf_value_type::boolean:
        return read_bool(key);
      case gguf_value_type::string:
        return reader_.string(gguf_header_limit_bytes, value_text);
      default:
        refuse("the key " + in_quotes(key) + " has value type " + std::to_string(type) +
               ", which is not known; the file is damaged or newer than this reader");
    }
  }

  bool read_bool(std::string const& key) {
    auto const byte = reader_.number<std::uint8_t>(value_text);
    if (byte > 1) {
      refuse("the key " + in_quotes(key) + " is " + std::to_string(byte) +
             " where 0 or 1 must stand");
    }
    return byte == 1;
  }

  metadata_value read_array(std::string const& key) {
    auto const type = reader_.number<std::uint32_t>("an array type");
    auto const length = reader_.number<std::uint64_t>("an array length");
    switch (static_cast<gguf_value_type>(type)) {
      case gguf_value_type::u8:
        return read_numbers<std::uint64_t, std::uint8_t>(key, length);
      case gguf_value_type::u16:
        return read_numbers<std::uint64_t, std::uint16_t>(key, length);
      case gguf_value_type::u32:
        return read_numbers<std::uint64_t, std::uint32_t>(key, length);
      case gguf_value_type::u64:
        return read_numbers<std::uint64_t, std::uint64_t>(key, length);
      case gguf_value_type::i8:
        return read_numbers<std::int64_t, std::int8_t>(key, length);
      case gguf_value_type::i16:
        return read_numbers<std::int64_t, std::int16_t>(key, length);
      case gguf_value_type::i32:
        return read_numbers<std::int64_t, std::int32_t>(key, length);
      case gguf_value_type::i64:
        return read_numbers<std::int64_t, std::int64_t>(key, length);
      case gguf_value_type::f32:
        return read_numbers<double, float>(key, length);
      case gguf_value_type::f64:
        return read_numbers<double, double>(key, length);
      case gguf_value_type::boolean:
        return read_list<bool>(key, length, 1, [&] { return read_bool(key); });
      case gguf_value_type::string:
        return read_list<std::string>(key, length, 8, [&] {
          return reader_.string(gguf_header_limit_bytes, "a string of an array");
        });
      case gguf_value_type::array:
        refuse("the key " + in_quotes(key) +
               " is an array of arrays, which is not read; convert the model again");
      default:
        refuse("the key " + in_quotes(key) + " is an array of value type " + std::to_string(type) +
               ", which is not known; the file is damaged or newer than this reader");
    }
  }

  template <class Wide, class Stored>
  std::vector<Wide> read_numbers(std::string const& key, std::uint64_t length) {
    return read_list<Wide>(key, length, sizeof(Stored), [this] {
      return static_cast<Wide>(reader_.number<Stored>(value_text));
    });
  }

  template <class T, class Next>
  std::vector<T> read_list(std::string const& key,
                           std::uint64_t length,
                           std::uint64_t smallest,
                           Next&& next) {
    if (length > reader_.remaining() / smallest) {
      refuse("the array " + in_quotes(key) + " claims " + std::to_string(length) +
             " elements but only " + std::to_string(reader_.remaining()) +
             " bytes follow; the file is damaged or cut off, get it again");
    }
    std::vector<T> list;
    // Trust the count only as far as a real vocabulary goes; beyond that the bytes read pay for the
    // growth.
    list.reserve(static_cast<std::size_t>(std::min<std::uint64_t>(length, 1U << 18U)));
    for (std::uint64_t i = 0; i < length; ++i) { list.push_back(next()); }
    return list;
  }

  void read_alignment() {
    auto const value = file_.meta.try_unsigned("general.alignment").value_or(32);
    if (value == 0 || (value & (value - 1)) != 0 || value > gguf_alignment_limit) {
      refuse("the key `general.alignment` is " + std::to_string(value) +
             "; it must be a power of two from 1 to " + std::to_string(gguf_alignment_limit));
    }
    file_.alignment = value;
  }

  void read_tensor() {
    gguf_tensor tensor;
    tensor.name = reader_.string(longest_name, "a tensor name");
    if (tensor.name.empty()) { refuse("a tensor has an empty name"); }
    if (!names_.insert(tensor.name).second) {
      refuse_tensor(tensor, "occurs twice; the file is damaged");
    }
    auto const rank = reader_.number<std::uint32_t>("a tensor's dimension count");
    if (rank > 4) {
      refuse_tensor(tensor, "has " + std::to_string(rank) + " dimensions; at most 4 are allowed");
    }
    for (std::uint32_t i = 0; i < rank; ++i) {
      tensor.dims.push_back(reader_.number<std::uint64_t>("a dimension"));
    }
    auto const id = reader_.number<std::uint32_t>("a tensor type");
    tensor.type = quant_type{id};
    if (id >= 133 || !find_traits(tensor.type)) {
      refuse_tensor(tensor, "has type " + std::to_string(id) + ", which " + why_unknown(id));
    }
    tensor.offset = reader_.number<std::uint64_t>("a tensor offset");
    tensor.bytes = size_of(tensor);
    file_.tensors.push_back(std::move(tensor));
  }

  std::uint64_t size_of(gguf_tensor const& tensor) const {
    std::uint64_t elements = 1;
    for (std::size_t i = 0; i < tensor.dims.size(); ++i) {
      std::uint64_t const dim = tensor.dims[i];
      if (dim == 0) { refuse_tensor(tensor, "has dimension " + std::to_string(i) + " equal to 0"); }
      auto const product = checked_product(elements, dim);
      // 2^60 elements of any type fit 64-bit byte counts (the widest element has 8 bytes).
      if (!product || *product > (std::uint64_t{1} << 60U)) {
        refuse_tensor(tensor, "has dimensions whose product does not fit: " + shape_of(tensor));
      }
      elements = *product;
    }
    auto const traits = traits_of(tensor.type);
    std::uint64_t const columns = tensor.dims.empty() ? 1 : tensor.dims[0];
    if (columns % traits.block_elements != 0) {
      refuse_tensor(tensor,
                    "has rows of " + std::to_string(columns) + " elements, not a multiple of the " +
                        std::to_string(traits.block_elements) + " that " +
                        std::string{traits.name} + " encodes together");
    }
    return elements / traits.block_elements * traits.block_bytes;
  }

  void place_tensors() {
    std::uint64_t const size = source_.size_bytes();
    std::vector<gguf_tensor*> order;
    for (gguf_tensor& tensor : file_.tensors) {
      if (tensor.offset % file_.alignment != 0) {
        refuse_tensor(tensor,
                      "starts at offset " + std::to_string(tensor.offset) +
                          ", not a multiple of the alignment " + std::to_string(file_.alignment));
      }
      std::uint64_t const room = size > file_.data_offset ? size - file_.data_offset : 0;
      if (tensor.offset > room || tensor.bytes > room - tensor.offset) {
        refuse_tensor(tensor,
                      "needs " + std::to_string(tensor.bytes) + " bytes at offset " +
                          std::to_string(tensor.offset) + " of a data section of " +
                          std::to_string(room) +
                          " bytes; the file is cut off or damaged, get it again");
      }
      tensor.offset += file_.data_offset;
      order.push_back(&tensor);
    }
    std::sort(order.begin(), order.end(), [](auto* a, auto* b) { return a->offset < b->offset; });
    for (std::size_t i = 1; i < order.size(); ++i) {
      if (order[i - 1]->offset + order[i - 1]->bytes > order[i]->offset) {
        refuse_tensor(*order[i],
                      "overlaps tensor " + in_quotes(order[i - 1]->name) + " at byte " +
                          std::to_string(order[i]->offset) + "; the file is damaged");
      }
    }
    data_end_ = order.empty() ? header_end_ : order.back()->offset + order.back()->bytes;
  }

  [[noreturn]] void refuse_tensor(gguf_tensor const& tensor, std::string const& rest) const {
    refuse("tensor " + in_quotes(tensor.name) + " " + rest);
  }
  [[nodiscard]] static std::string shape_of(gguf_tensor const& tensor) {
    std::string text;
    for (std::uint64_t const dim : tensor.dims) {
      text += (text.empty() ? "" : " x ") + std::to_string(dim);
    }
    return text;
  }

  static constexpr char const* value_text = "a metadata value";
  byte_source const& source_;
  byte_reader reader_;
  gguf_file file_;
  std::uint64_t tensor_count_ = 0;
  std::uint64_t key_count_ = 0;
  std::uint64_t header_end_ = 0;
  std::uint64_t data_end_ = 0;
  std::unordered_set<std::string> names_;
};

}  // namespace detail

/// Reads and checks the header of one GGUF file (version 3, or 2 which has the same layout), and
/// that the file is long enough for its tensors. Tensor data is not read.
///
/// Errors: format_error naming the file, the key or tensor and the numbers; io_error when reading
///         fails.
/// Cost:   reads the header once, front to back; memory in proportion to it.
/// Source: the GGUF description of ggml-org/ggml, docs/gguf.md.
[[nodiscard]] inline gguf_file read_gguf(byte_source const& source) {
  return detail::gguf_parser{source}.parse();
}

}  // namespace terrace::format
