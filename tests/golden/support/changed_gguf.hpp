// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/metadata.hpp>
#include <terrace/core/quant_type.hpp>
#include <terrace/format/byte_source.hpp>
#include <terrace/format/gguf.hpp>
#include <terrace/format/gguf_writer.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace terrace::golden {

/// A tensor on its way into a copy of its file; without bytes it stays out.
struct copied_tensor {
  std::string name;
  quant_type type = quant_type::f32;
  std::vector<std::uint64_t> dims;
  std::vector<std::byte> bytes;

  /// The bytes as float32 values.
  [[nodiscard]] std::span<float> floats() {
    return {reinterpret_cast<float*>(bytes.data()), bytes.size() / sizeof(float)};
  }
};

/// What is done to a model before it is written again.
struct gguf_change {
  std::function<void(metadata&)> meta = [](metadata&) {};
  std::function<void(copied_tensor&)> tensor = [](copied_tensor&) {};
};

/// Writes the GGUF again, changed, to `out` and returns that path.
inline std::filesystem::path write_changed(std::filesystem::path const& whole,
                                           std::filesystem::path const& out,
                                           gguf_change const& change) {
  format::file_source const source{whole};
  auto header = format::read_gguf(source);
  format::gguf_writer writer;
  change.meta(header.meta);
  writer.set_all(header.meta);
  for (auto const& tensor : header.tensors) {
    copied_tensor copy{tensor.name, tensor.type, tensor.dims, std::vector<std::byte>(tensor.bytes)};
    source.read(tensor.offset, copy.bytes);
    change.tensor(copy);
    if (copy.bytes.empty()) { continue; }
    writer.add_tensor(std::move(copy.name),
                      copy.type,
                      std::move(copy.dims),
                      [bytes = std::move(copy.bytes)](auto const& sink) { sink(bytes); });
  }
  writer.write(out);
  return out;
}

}  // namespace terrace::golden
