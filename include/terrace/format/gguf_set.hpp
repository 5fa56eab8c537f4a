// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/error.hpp>
#include <terrace/core/metadata.hpp>
#include <terrace/format/byte_source.hpp>
#include <terrace/format/detail/text.hpp>
#include <terrace/format/gguf.hpp>
#include <terrace/format/shard_name.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace terrace::format {

/// A GGUF model: one file, or all shards of a split one.
struct gguf_set {
  std::vector<std::filesystem::path> files;  ///< shard 0 first
  std::vector<gguf_file> headers;            ///< one per file
  metadata meta;                             ///< keys of all shards
};

namespace detail {

[[nodiscard]] inline gguf_file read_gguf_file(std::filesystem::path const& path) {
  return read_gguf(file_source{path});
}

/// Checks that the header at `path` is shard `number` (from 1) of `count`.
inline void check_shard(std::filesystem::path const& path,
                        metadata const& meta,
                        std::uint64_t number,
                        std::uint64_t count) {
  auto const stated_count = meta.get_unsigned("split.count");
  auto const stated_number = meta.get_unsigned("split.no");
  if (stated_count != count || stated_number != number - 1) {
    throw format_error{path.string() + ": the file says it is shard " +
                       std::to_string(stated_number) + " of " + std::to_string(stated_count) +
                       " (counted from 0) but stands where shard " + std::to_string(number - 1) +
                       " of " + std::to_string(count) +
                       " belongs; give the shards their own names back"};
  }
}

/// Adds the keys of one shard; a key may repeat between shards only with the same value. Keys of
/// the split itself and the alignment differ by nature.
inline void merge_keys(metadata& all, std::filesystem::path const& path, metadata const& shard) {
  for (auto const& [key, value] : shard) {
    if (key.starts_with("split.") || key == "general.alignment") { continue; }
    auto const* known = all.find(key);
    if (known != nullptr && *known != value) {
      throw format_error{
          path.string() + ": the key " + in_quotes(key) +
          " has another value than in an earlier shard; the shards are not of one model"};
    }
    if (known == nullptr) { all.set(key, value); }
  }
}

inline void check_shard_tensors(gguf_set const& set) {
  std::unordered_map<std::string_view, std::size_t> shard_of;
  std::size_t total = 0;
  for (std::size_t file = 0; file < set.headers.size(); ++file) {
    for (gguf_tensor const& tensor : set.headers[file].tensors) {
      auto const [first, fresh] = shard_of.emplace(tensor.name, file);
      if (!fresh) {
        throw format_error{set.files[file].string() + ": tensor " + in_quotes(tensor.name) +
                           " is also in " + set.files[first->second].filename().string() +
                           "; the shards are not of one split"};
      }
    }
    total += set.headers[file].tensors.size();
  }
  for (std::size_t file = 0; file < set.headers.size(); ++file) {
    auto const stated = set.headers[file].meta.try_unsigned("split.tensors.count");
    if (stated && *stated != total) {
      throw format_error{set.files[file].string() + ": `split.tensors.count` is " +
                         std::to_string(*stated) + " but the " +
                         std::to_string(set.headers.size()) + " shards hold " +
                         std::to_string(total) +
                         " tensors; a shard is damaged or of another split, get the files again"};
    }
  }
}

}  // namespace detail

/// Reads the headers of a GGUF model of which `named` is the only file or any shard.
///
/// Errors: format_error for a damaged file, a shard that is missing, out of place or of another
///         split; io_error.
/// Cost:   reads every shard's header; keeps no file open.
[[nodiscard]] inline gguf_set read_gguf_set(std::filesystem::path const& named) {
  gguf_file first = detail::read_gguf_file(named);
  std::uint64_t const count = first.meta.try_unsigned("split.count").value_or(1);
  gguf_set set;
  set.meta = metadata{named.string()};
  if (count <= 1) {
    set.files = {named};
    detail::merge_keys(set.meta, named, first.meta);
    set.headers.push_back(std::move(first));
    detail::check_shard_tensors(set);
    return set;
  }

  auto const name = parse_shard_name(named.filename().string(), ".gguf");
  if (!name || name->count != count) {
    throw format_error{named.string() + ": the file is one of " + std::to_string(count) +
                       " shards but is not named like `model-00001-of-00005.gguf` with that count, "
                       "so the others cannot "
                       "be found; give the shards their own names back"};
  }
  for (std::uint32_t number = 1; number <= name->count; ++number) {
    auto const path = named.parent_path() / shard_file_name(*name, number, ".gguf");
    std::error_code ignored;
    if (!std::filesystem::exists(path, ignored)) {
      throw format_error{path.string() + ": shard " + std::to_string(number) + " of " +
                         std::to_string(count) +
                         " is missing; get it and put it beside the others"};
    }
    set.files.push_back(path);
    set.headers.push_back(number == name->number ? std::move(first) : detail::read_gguf_file(path));
    detail::check_shard(path, set.headers.back().meta, number, count);
    detail::merge_keys(set.meta, path, set.headers.back().meta);
  }
  detail::check_shard_tensors(set);
  return set;
}

}  // namespace terrace::format
