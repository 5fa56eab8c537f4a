// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/format/byte_source.hpp>
#include <terrace/format/safetensors.hpp>

#include <nlohmann/json.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

namespace terrace::golden {

/// A tensor on its way into a copy of its file; without bytes it stays out.
struct copied_safetensor {
  std::string name, dtype;
  std::vector<std::uint64_t> shape;
  std::vector<std::byte> bytes;

  /// Gives it another shape; bytes that are new are zeros.
  void reshape(std::vector<std::uint64_t> to) {
    std::size_t before = 1, after = 1;
    for (auto const dim : shape) { before *= dim; }
    for (auto const dim : to) { after *= dim; }
    bytes.resize(bytes.size() / before * after);
    shape = std::move(to);
  }
};

/// What is done to a model before it is written again.
struct safetensors_change {
  std::function<void(nlohmann::ordered_json&)> config = [](auto&) {};
  std::function<void(copied_safetensor&)> tensor = [](auto&) {};
};

/// Writes the folder of one safetensors file again, changed, to `out` and returns that path.
inline std::filesystem::path write_changed(std::filesystem::path const& folder,
                                           std::filesystem::path const& out,
                                           safetensors_change const& change) {
  namespace fs = std::filesystem;
  fs::remove_all(out);
  fs::copy(folder, out);
  auto config = nlohmann::ordered_json::parse(std::ifstream{folder / "config.json"});
  change.config(config);
  fs::permissions(out / "config.json", fs::perms::owner_all);
  std::ofstream{out / "config.json"} << config;

  format::file_source const source{folder / "model.safetensors"};
  auto header = nlohmann::ordered_json::object();
  std::string data;
  for (auto const& tensor : format::read_safetensors(source).tensors) {
    copied_safetensor copy{tensor.name,
                           std::string{format::name_of(tensor.dtype)},
                           tensor.shape,
                           std::vector<std::byte>(tensor.bytes)};
    source.read(tensor.offset, copy.bytes);
    change.tensor(copy);
    if (copy.bytes.empty()) { continue; }
    header[copy.name] = {{"dtype", copy.dtype},
                         {"shape", copy.shape},
                         {"data_offsets", {data.size(), data.size() + copy.bytes.size()}}};
    data.append(reinterpret_cast<char const*>(copy.bytes.data()), copy.bytes.size());
  }
  std::string const text = header.dump();
  std::uint64_t const length = text.size();
  fs::permissions(out / "model.safetensors", fs::perms::owner_all);
  std::ofstream file{out / "model.safetensors", std::ios::binary};
  file.write(reinterpret_cast<char const*>(&length), sizeof length);
  file << text << data;
  return out;
}

}  // namespace terrace::golden
