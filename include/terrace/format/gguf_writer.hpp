// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/error.hpp>
#include <terrace/core/metadata.hpp>
#include <terrace/core/quant_type.hpp>
#include <terrace/core/units.hpp>
#include <terrace/format/detail/text.hpp>
#include <terrace/format/gguf.hpp>
#include <terrace/format/shard_name.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <optional>
#include <ostream>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <unordered_set>
#include <utility>
#include <variant>
#include <vector>

namespace terrace::format {

/// Where the parts of a GGUF file lie, for a caller that writes the tensors' data himself, in any
/// order or from several threads. Bytes between tensors are zero.
struct gguf_layout {
  std::string head;                    ///< what the file starts with, up to the first tensor
  std::vector<std::uint64_t> offsets;  ///< of each tensor's data, from the start of the file
  std::uint64_t bytes = 0;             ///< of the whole file
};

/// Writes GGUF version 3: metadata, then tensors whose data is asked for one at a time while the
/// file is written.
class gguf_writer {
 public:
  /// Takes the next run of a tensor's bytes.
  using byte_sink = std::function<void(std::span<std::byte const>)>;
  /// Hands a tensor's bytes to the sink, in order, in pieces of any size. Called once per write.
  using tensor_data = std::function<void(byte_sink const&)>;

  /// `alignment` is written as `general.alignment` when it is not the default.
  /// Errors: contract_error unless it is a power of two of at most 16 MiB.
  explicit gguf_writer(std::uint64_t alignment = 32) : alignment_{alignment} {
    if (alignment == 0 || (alignment & (alignment - 1)) != 0 || alignment > gguf_alignment_limit) {
      throw contract_error{"gguf_writer: the alignment " + std::to_string(alignment) +
                           " is not a power of two from 1 to " +
                           std::to_string(gguf_alignment_limit)};
    }
    if (alignment != 32) { set("general.alignment", alignment); }
  }

  /// Adds or replaces a key. Without `type`, whole numbers become u32 or i32 where they fit and 64
  /// bits wide otherwise, and others f32: the types that readers expect. For an array `type` is
  /// that of its elements.
  void set(std::string key, metadata_value value, std::optional<gguf_value_type> type = {}) {
    auto const known =
        std::find_if(keys_.begin(), keys_.end(), [&](auto& old) { return old.key == key; });
    entry fresh{std::move(key), std::move(value), type};
    if (known == keys_.end()) {
      keys_.push_back(std::move(fresh));
    } else {
      *known = std::move(fresh);
    }
  }
  /// Copies all keys of `meta` except those of a split and the alignment, which belong to a file,
  /// not to a model.
  void set_all(metadata const& meta) {
    for (auto const& [key, value] : meta) {
      if (!key.starts_with("split.") && key != "general.alignment") { set(key, value); }
    }
  }

  /// `dims[0]` runs fastest. Errors: contract_error when rows are not whole blocks of `type` or the
  /// name is taken.
  void add_tensor(std::string name,
                  quant_type type,
                  std::vector<std::uint64_t> dims,
                  tensor_data data) {
    gguf_tensor tensor{.name = std::move(name), .type = type, .dims = std::move(dims)};
    auto const traits = find_traits(type);
    std::uint64_t const columns = tensor.dims.empty() ? 1 : tensor.dims[0];
    bool const taken = names_.contains(tensor.name);
    if (!traits || static_cast<std::uint32_t>(type) >= 133 || tensor.dims.size() > 4 || taken ||
        columns % traits->block_elements != 0) {
      throw contract_error{"gguf_writer: tensor " + detail::in_quotes(tensor.name) + " of type " +
                           std::string{name_of(type)} + " and rows of " + std::to_string(columns) +
                           " cannot be written: unknown type, partial blocks, more than 4 "
                           "dimensions or a name in use"};
    }
    tensor.bytes = row_bytes(type, columns);
    for (std::size_t i = 1; i < tensor.dims.size(); ++i) { tensor.bytes *= tensor.dims[i]; }
    names_.insert(tensor.name);
    tensors_.push_back({std::move(tensor), std::move(data)});
  }
  /// Borrows `data` until the last write.
  void add_tensor(std::string name,
                  quant_type type,
                  std::vector<std::uint64_t> dims,
                  std::span<std::byte const> data) {
    add_tensor(
        std::move(name), type, std::move(dims), [data](byte_sink const& sink) { sink(data); });
  }

  /// Adds a tensor for `layout` alone: `write` refuses it.
  void add_tensor(std::string name, quant_type type, std::vector<std::uint64_t> dims) {
    add_tensor(std::move(name), type, std::move(dims), [](byte_sink const&) {});
  }

  /// Everything as one file.
  [[nodiscard]] gguf_layout layout() const { return layout_of(0, tensors_.size(), {}); }
  /// Shard `shard`, counted from 0, of `shards`, with tensors [first, last) in the order they were
  /// added; the first shard carries the metadata.
  [[nodiscard]] gguf_layout layout(std::uint32_t shard,
                                   std::uint32_t shards,
                                   std::size_t first,
                                   std::size_t last) const {
    return layout_of(first, last, split_keys(shard, shards));
  }

  /// Writes everything as one file.
  /// Errors: io_error when the stream fails; contract_error when a tensor's data has not the size
  ///         its shape asks for.
  void write(std::ostream& out) const { write_shard(out, 0, tensors_.size(), {}); }
  /// Writes a file under a temporary name and gives it its own once it is complete.
  void write(std::filesystem::path const& path) const {
    write_file(path, [&](std::ostream& out) { write(out); });
  }

  /// Writes shards "prefix-00001-of-0000N.gguf": the first with all metadata, tensors in order and
  /// in equal numbers, or none in the first when `metadata_alone`. Returns the files.
  std::vector<std::filesystem::path> write_split(std::filesystem::path const& prefix,
                                                 std::uint32_t shards,
                                                 bool metadata_alone = false) const {
    if (shards == 0 || shards > 9999) {
      throw contract_error{"gguf_writer: a split has 1 to 9999 shards"};
    }
    std::uint32_t const skip = metadata_alone && shards > 1 ? 1 : 0;
    std::vector<std::filesystem::path> files;
    for (std::uint32_t shard = 0; shard < shards; ++shard) {
      auto const bound = [&](std::uint32_t at) {
        return at < skip ? 0 : tensors_.size() * (at - skip) / (shards - skip);
      };
      shard_name const name{prefix.filename().string(), shard + 1, shards};
      files.push_back(prefix.parent_path() / shard_file_name(name, shard + 1, ".gguf"));
      write_file(files.back(), [&](std::ostream& out) {
        write_shard(out, bound(shard), bound(shard + 1), split_keys(shard, shards));
      });
    }
    return files;
  }

 private:
  struct entry {
    std::string key;
    metadata_value value;
    std::optional<gguf_value_type> type;
  };
  struct pending_tensor {
    gguf_tensor facts;
    tensor_data data;
  };

  [[nodiscard]] std::vector<entry> split_keys(std::uint32_t shard, std::uint32_t shards) const {
    return {
        {"split.no", std::uint64_t{shard}, gguf_value_type::u16},
        {"split.count", std::uint64_t{shards}, gguf_value_type::u16},
        {"split.tensors.count", static_cast<std::int64_t>(tensors_.size()), gguf_value_type::i32}};
  }

  template <class Write>
  static void write_file(std::filesystem::path const& path, Write&& write) {
    auto const partial = std::filesystem::path{path} += ".partial";
    std::error_code code;
    try {
      std::ofstream out{partial, std::ios::binary | std::ios::trunc};
      write(out);
      out.close();
      if (!out) {
        throw io_error{
            path.string() + ": cannot be written; is there room, and may you write there?", 0};
      }
    } catch (...) {
      std::filesystem::remove(partial, code);
      throw;
    }
    std::filesystem::rename(partial, path, code);
    if (code) {
      throw io_error{path.string() + ": cannot be written (" + code.message() + ")", code.value()};
    }
  }

  /// Tensors [first, last); `split` is empty for a file that is no shard. Only the first shard
  /// carries the model's keys.
  [[nodiscard]] gguf_layout layout_of(std::size_t first,
                                      std::size_t last,
                                      std::vector<entry> const& split) const {
    std::vector<entry> keys = split;
    bool const leads = split.empty() || split.front().value == metadata_value{std::uint64_t{0}};
    for (entry const& key : keys_) {
      if (leads || key.key == "general.alignment") { keys.push_back(key); }
    }
    std::string head = "GGUF";
    append(head, std::uint32_t{3});
    append(head, std::uint64_t{last - first});
    append(head, std::uint64_t{keys.size()});
    for (entry const& key : keys) { append_key(head, key); }
    std::vector<std::uint64_t> offsets;
    std::uint64_t offset = 0;
    for (std::size_t i = first; i < last; ++i) {
      gguf_tensor const& tensor = tensors_[i].facts;
      append_text(head, tensor.name);
      append(head, static_cast<std::uint32_t>(tensor.dims.size()));
      for (std::uint64_t const dim : tensor.dims) { append(head, dim); }
      append(head, static_cast<std::uint32_t>(tensor.type));
      append(head, offset);
      offsets.push_back(offset);
      offset += round_up(tensor.bytes, alignment_);
    }
    head.resize(static_cast<std::size_t>(round_up(head.size(), alignment_)), '\0');
    for (std::uint64_t& one : offsets) { one += head.size(); }
    std::uint64_t const bytes = head.size() + offset;
    return {std::move(head), std::move(offsets), bytes};
  }

  void write_shard(std::ostream& out,
                   std::size_t first,
                   std::size_t last,
                   std::vector<entry> const& split) const {
    std::string const head = layout_of(first, last, split).head;
    out.write(head.data(), static_cast<std::streamsize>(head.size()));
    for (std::size_t i = first; i < last; ++i) { write_data(out, tensors_[i]); }
    if (!out) { throw io_error{"a GGUF file cannot be written; is there room for it?", 0}; }
  }

  void write_data(std::ostream& out, pending_tensor const& tensor) const {
    std::uint64_t written = 0;
    tensor.data([&](std::span<std::byte const> piece) {
      out.write(reinterpret_cast<char const*>(piece.data()),
                static_cast<std::streamsize>(piece.size()));
      written += piece.size();
    });
    if (written != tensor.facts.bytes) {
      throw contract_error{"gguf_writer: tensor " + detail::in_quotes(tensor.facts.name) +
                           " was given " + std::to_string(written) +
                           " bytes where its shape needs " + std::to_string(tensor.facts.bytes)};
    }
    std::string const padding(static_cast<std::size_t>(round_up(written, alignment_) - written),
                              '\0');
    out.write(padding.data(), static_cast<std::streamsize>(padding.size()));
  }

  // ---- values ----

  template <class T>
  static void append(std::string& out, T value) {
    char bytes[sizeof(T)];
    std::memcpy(bytes, &value, sizeof(T));
    out.append(bytes, sizeof(T));
  }
  static void append_text(std::string& out, std::string_view text) {
    append(out, std::uint64_t{text.size()});
    out += text;
  }

  static void append_key(std::string& out, entry const& key) {
    append_text(out, key.key);
    std::visit([&](auto const& value) { append_value(out, key, value); }, key.value);
  }
  template <class T>
  static void append_value(std::string& out, entry const& key, T const& value) {
    gguf_value_type const type = key.type.value_or(narrow_type(&value, 1));
    append(out, static_cast<std::uint32_t>(type));
    append_scalar(out, key, type, value);
  }
  template <class T>
  static void append_value(std::string& out, entry const& key, std::vector<T> const& list) {
    gguf_value_type type = gguf_value_type::boolean;
    if constexpr (!std::is_same_v<T, bool>) { type = narrow_type(list.data(), list.size()); }
    type = key.type.value_or(type);
    append(out, static_cast<std::uint32_t>(gguf_value_type::array));
    append(out, static_cast<std::uint32_t>(type));
    append(out, std::uint64_t{list.size()});
    for (T const& value : list) { append_scalar(out, key, type, value); }
  }

  /// The type that readers expect for these values.
  template <class T>
  static gguf_value_type narrow_type(T const* values, std::size_t count) {
    if constexpr (std::is_same_v<T, bool>) { return gguf_value_type::boolean; }
    if constexpr (std::is_same_v<T, std::string>) { return gguf_value_type::string; }
    if constexpr (std::is_same_v<T, double>) { return gguf_value_type::f32; }
    if constexpr (std::is_same_v<T, std::uint64_t>) {
      bool const fits =
          std::all_of(values, values + count, [](auto v) { return v <= 0xFFFF'FFFFU; });
      return fits ? gguf_value_type::u32 : gguf_value_type::u64;
    }
    if constexpr (std::is_same_v<T, std::int64_t>) {
      bool const fits = std::all_of(
          values, values + count, [](auto v) { return std::in_range<std::int32_t>(v); });
      return fits ? gguf_value_type::i32 : gguf_value_type::i64;
    }
  }

  template <class T>
  static void append_scalar(std::string& out,
                            entry const& key,
                            gguf_value_type type,
                            T const& value) {
    if constexpr (std::is_same_v<T, std::string>) {
      if (type != gguf_value_type::string) { unfit(key); }
      append_text(out, value);
    } else {
      switch (type) {
        case gguf_value_type::u8:
          return append_number<std::uint8_t>(out, key, value);
        case gguf_value_type::i8:
          return append_number<std::int8_t>(out, key, value);
        case gguf_value_type::u16:
          return append_number<std::uint16_t>(out, key, value);
        case gguf_value_type::i16:
          return append_number<std::int16_t>(out, key, value);
        case gguf_value_type::u32:
          return append_number<std::uint32_t>(out, key, value);
        case gguf_value_type::i32:
          return append_number<std::int32_t>(out, key, value);
        case gguf_value_type::u64:
          return append_number<std::uint64_t>(out, key, value);
        case gguf_value_type::i64:
          return append_number<std::int64_t>(out, key, value);
        case gguf_value_type::f32:
          return append(out, static_cast<float>(value));
        case gguf_value_type::f64:
          return append(out, static_cast<double>(value));
        case gguf_value_type::boolean:
          return append(out, static_cast<std::uint8_t>(value != T{}));
        default:
          unfit(key);
      }
    }
  }
  template <class Stored, class T>
  static void append_number(std::string& out, entry const& key, T value) {
    if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
      if (!std::in_range<Stored>(value)) { unfit(key); }
      append(out, static_cast<Stored>(value));
    } else {
      unfit(key);
    }
  }
  [[noreturn]] static void unfit(entry const& key) {
    throw contract_error{"gguf_writer: the value of " + detail::in_quotes(key.key) +
                         " does not fit the type asked for"};
  }

  std::uint64_t alignment_;
  std::vector<entry> keys_;
  std::vector<pending_tensor> tensors_;
  std::unordered_set<std::string> names_;  ///< of the tensors
};

}  // namespace terrace::format
