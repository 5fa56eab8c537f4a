// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/format/byte_source.hpp>
#include <terrace/format/gguf.hpp>
#include <terrace/format/gguf_writer.hpp>

#include <filesystem>
#include <vector>

namespace terrace::golden {

/// Writes the GGUF again as three shards into `folder` and returns the second of them.
[[nodiscard]] inline std::filesystem::path split_in_three(std::filesystem::path const& whole,
                                                          std::filesystem::path const& folder) {
  format::file_source const source{whole};
  auto const header = format::read_gguf(source);
  format::gguf_writer writer;
  writer.set_all(header.meta);
  for (auto const& tensor : header.tensors) {
    writer.add_tensor(tensor.name, tensor.type, tensor.dims, [&source, &tensor](auto const& sink) {
      std::vector<std::byte> bytes(tensor.bytes);
      source.read(tensor.offset, bytes);
      sink(bytes);
    });
  }
  return writer.write_split(folder / "split", 3).at(1);
}

}  // namespace terrace::golden
