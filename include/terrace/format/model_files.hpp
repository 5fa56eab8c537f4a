// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/error.hpp>
#include <terrace/format/detail/json_text.hpp>
#include <terrace/format/detail/text.hpp>
#include <terrace/format/shard_name.hpp>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace terrace::format {

enum class container : std::uint8_t { gguf, safetensors };

[[nodiscard]] constexpr std::string_view name_of(container kind) noexcept {
  return kind == container::gguf ? "gguf" : "safetensors";
}

/// What a user's path stands for.
struct model_files {
  container kind = container::gguf;
  std::filesystem::path folder;  ///< where config.json and tokenizer files would lie
  /// safetensors: every file; GGUF: one shard, the others follow from it.
  std::vector<std::filesystem::path> files;
  std::filesystem::path index;  ///< safetensors: the index that lists the files, or empty
  std::map<std::string, std::string> weight_map;  ///< of the index: tensor name -> file name
};

namespace detail {

namespace fs = std::filesystem;

/// tensor -> file name, as "model.safetensors.index.json" has it.
[[nodiscard]] inline std::map<std::string, std::string> read_weight_map(fs::path const& index) {
  json const text = read_json(index);
  if (!text.is_object() || !text.contains("weight_map") || !text["weight_map"].is_object()) {
    throw format_error{index.string() +
                       ": has no object `weight_map`; it is not an index of safetensors files"};
  }
  std::map<std::string, std::string> map;
  for (auto const& [tensor, file] : text["weight_map"].items()) {
    std::string const name = file.is_string() ? file.get<std::string>() : std::string{};
    if (name.empty() || name == ".." || name == "." ||
        name.find_first_of(std::string_view{"/\\\0", 3}) != name.npos) {
      throw format_error{index.string() + ": tensor " + in_quotes(tensor) + " is said to be in " +
                         in_quotes(name) + ", which is not the name of a file in the same folder"};
    }
    map.emplace(tensor, name);
  }
  if (map.empty()) { throw format_error{index.string() + ": lists no tensor at all"}; }
  return map;
}

/// The weight files of a folder, grouped into sets that each make one model.
struct weight_set {
  std::string title;            ///< the file to name in order to choose this set
  std::set<std::string> files;  ///< file names
  fs::path index;
  std::map<std::string, std::string> weight_map;
};

[[nodiscard]] inline std::vector<std::string> list_files(fs::path const& folder) {
  std::error_code code;
  std::vector<std::string> names;
  for (fs::directory_iterator entry{folder, code}, end; !code && entry != end;
       entry.increment(code)) {
    std::error_code unreadable;
    if (entry->is_regular_file(unreadable)) { names.push_back(entry->path().filename().string()); }
  }
  if (code) {
    throw io_error{folder.string() + ": cannot be listed (" + code.message() + ")", code.value()};
  }
  std::sort(names.begin(), names.end());
  return names;
}

/// Groups files that are shards of one split; every other file is a set of its own.
inline void group_shards(std::vector<std::string> const& names,
                         char const* extension,
                         std::vector<weight_set>& sets) {
  std::map<std::string, std::size_t> set_of;
  for (std::string const& name : names) {
    auto const shard = parse_shard_name(name, extension);
    std::string const key = shard ? shard->prefix + "\n" + std::to_string(shard->count) : name;
    auto const [at, fresh] = set_of.emplace(key, sets.size());
    if (fresh) { sets.push_back({name, {}, {}, {}}); }
    sets[at->second].files.insert(name);
  }
}

[[nodiscard]] inline std::vector<weight_set> safetensors_sets(
    fs::path const& folder, std::vector<std::string> const& names) {
  std::vector<weight_set> sets;
  std::set<std::string> listed;
  for (std::string const& name : names) {
    if (!name.ends_with(".safetensors.index.json")) { continue; }
    weight_set set{name, {}, folder / name, read_weight_map(folder / name)};
    for (auto const& [tensor, file] : set.weight_map) { set.files.insert(file); }
    listed.insert(set.files.begin(), set.files.end());
    sets.push_back(std::move(set));
  }
  std::vector<std::string> rest;
  for (std::string const& name : names) {
    if (name.ends_with(".safetensors") && !listed.contains(name)) { rest.push_back(name); }
  }
  group_shards(rest, ".safetensors", sets);
  return sets;
}

[[nodiscard]] inline std::vector<weight_set> gguf_sets(std::vector<std::string> const& names) {
  std::vector<std::string> files;
  std::copy_if(names.begin(), names.end(), std::back_inserter(files), [](auto& name) {
    return name.ends_with(".gguf");
  });
  std::vector<weight_set> sets;
  group_shards(files, ".gguf", sets);
  return sets;
}

[[nodiscard]] inline model_files from_set(fs::path const& folder, container kind, weight_set set) {
  model_files found{.kind = kind,
                    .folder = folder,
                    .files = {},
                    .index = std::move(set.index),
                    .weight_map = std::move(set.weight_map)};
  for (std::string const& file : set.files) { found.files.push_back(folder / file); }
  return found;
}

/// Shards of a split without an index: all of them must be there.
inline void check_all_shards(fs::path const& folder, weight_set const& set) {
  auto const shard = set.index.empty() ? parse_shard_name(*set.files.begin(), ".safetensors")
                                       : std::optional<shard_name>{};
  if (!shard) { return; }
  for (std::uint32_t number = 1; number <= shard->count; ++number) {
    std::string const name = shard_file_name(*shard, number, ".safetensors");
    if (!set.files.contains(name)) {
      throw format_error{(folder / name).string() + ": shard " + std::to_string(number) + " of " +
                         std::to_string(shard->count) +
                         " is missing; get it and put it beside the others"};
    }
  }
}

[[nodiscard]] inline model_files only_set(fs::path const& folder,
                                          container kind,
                                          std::vector<weight_set> sets) {
  if (sets.size() > 1) {
    std::string list;
    for (weight_set const& set : sets) { list += (list.empty() ? "" : ", ") + set.title; }
    throw format_error{folder.string() + ": holds " + std::to_string(sets.size()) + " sets of " +
                       std::string{name_of(kind)} + " weights (" + list + "); name the one to use"};
  }
  check_all_shards(folder, sets.front());
  return from_set(folder, kind, std::move(sets.front()));
}

[[nodiscard]] inline model_files files_of_folder(fs::path const& folder) {
  auto const names = list_files(folder);
  bool const has_config = std::binary_search(names.begin(), names.end(), "config.json");
  auto const packed = gguf_sets(names);
  bool const has_tensors = std::any_of(names.begin(), names.end(), [](auto& name) {
    return name.ends_with(".safetensors") || name.ends_with(".safetensors.index.json");
  });
  if (has_tensors && (has_config || packed.empty())) {
    return only_set(folder, container::safetensors, safetensors_sets(folder, names));
  }
  if (!packed.empty()) { return only_set(folder, container::gguf, packed); }
  throw format_error{folder.string() +
                     ": holds no .gguf and no .safetensors file; name a model file or its folder"};
}

/// A safetensors file named by the user: alone, or with the set that an index or its own name puts
/// it in.
[[nodiscard]] inline model_files files_of_safetensors(fs::path const& file) {
  fs::path const folder = file.parent_path().empty() ? fs::path{"."} : file.parent_path();
  std::string const name = file.filename().string();
  for (weight_set& set : safetensors_sets(folder, list_files(folder))) {
    if (set.title == name || set.files.contains(name)) {
      check_all_shards(folder, set);
      return from_set(folder, container::safetensors, std::move(set));
    }
  }
  return from_set(folder, container::safetensors, {name, {name}, {}, {}});
}

}  // namespace detail

/// Finds the files of the model that `model` stands for: any shard of a GGUF, a safetensors file or
/// its index, or a folder. A folder with config.json and safetensors is a safetensors model even
/// when a GGUF lies beside them.
///
/// Errors: format_error when there is no model, or more than one of the same container (the
///         sentence lists them).
[[nodiscard]] inline model_files find_model_files(std::filesystem::path const& model) {
  std::error_code code;
  auto const status = std::filesystem::status(model, code);
  if (!std::filesystem::exists(status)) {
    throw io_error{model.string() + ": there is no such file or folder", code.value()};
  }
  if (std::filesystem::is_directory(status)) { return detail::files_of_folder(model); }
  std::string const name = model.filename().string();
  if (name.ends_with(".safetensors") || name.ends_with(".safetensors.index.json")) {
    return detail::files_of_safetensors(model);
  }
  auto const folder =
      model.parent_path().empty() ? std::filesystem::path{"."} : model.parent_path();
  return detail::from_set(folder, container::gguf, {name, {name}, {}, {}});
}

}  // namespace terrace::format
