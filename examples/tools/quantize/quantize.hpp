// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "type_rules.hpp"

#include <terrace/core/error.hpp>
#include <terrace/core/metadata.hpp>
#include <terrace/core/quant_type.hpp>
#include <terrace/format/byte_source.hpp>
#include <terrace/format/gguf_set.hpp>
#include <terrace/format/gguf_writer.hpp>
#include <terrace/quant/decode.hpp>
#include <terrace/quant/encode.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace terrace::quantize {

/// What was written, for the closing table.
struct summary {
  struct group {
    std::size_t tensors = 0;
    std::uint64_t bytes = 0;
  };
  std::map<quant_type, group> by_type;
  std::vector<std::string> fell_back;  ///< tensors written in another type than asked for
};

namespace detail {

/// Writes one tensor in `type`, some rows at a time.
inline void convert(format::byte_source const& source,
                    format::gguf_tensor const& tensor,
                    quant_type type,
                    format::gguf_writer::byte_sink const& sink) {
  constexpr std::uint64_t chunk_elements = 1U << 20U;
  std::uint64_t const cols = tensor.dims[0];
  std::uint64_t const row_size = row_bytes(tensor.type, cols);
  std::uint64_t const rows = tensor.bytes / row_size;
  std::uint64_t const step = std::clamp<std::uint64_t>(chunk_elements / cols, 1, rows);
  std::vector<std::byte> from(step * row_size);
  std::vector<float> values(step * cols);
  std::vector<std::byte> to(step * row_bytes(type, cols));
  for (std::uint64_t row = 0; row < rows; row += step) {
    std::uint64_t const count = std::min(step, rows - row);
    source.read(tensor.offset + row * row_size, std::span{from}.first(count * row_size));
    quant::decode_blocks(tensor.type, from.data(), count * cols, values.data());
    try {
      quant::encode_row(type, std::span{values}.first(count * cols), to.data());
    } catch (contract_error const& refused) {
      throw format_error{source.name() + ": tensor `" + tensor.name + "`, from row " +
                         std::to_string(row) + ": " + refused.what()};
    }
    sink(std::span{to}.first(count * row_bytes(type, cols)));
  }
}

inline void copy(format::byte_source const& source,
                 format::gguf_tensor const& tensor,
                 format::gguf_writer::byte_sink const& sink) {
  std::vector<std::byte> piece(std::min<std::uint64_t>(tensor.bytes, 4U << 20U));
  for (std::uint64_t at = 0; at < tensor.bytes; at += piece.size()) {
    auto const part =
        std::span{piece}.first(std::min<std::uint64_t>(piece.size(), tensor.bytes - at));
    source.read(tensor.offset + at, part);
    sink(part);
  }
}

}  // namespace detail

/// Writes the model that `from` belongs to as one GGUF file with its matrices in the types that
/// `rules` choose; metadata and everything else are copied.
///
/// Errors: format_error for a broken input or a value no type of `rules` holds, naming the tensor; io_error.
/// Cost:   reads and writes each tensor once; memory for some rows of one.
inline summary quantize(std::filesystem::path const& from,
                        std::filesystem::path const& to,
                        type_rules const& rules) {
  auto const set = format::read_gguf_set(from);
  format::gguf_writer writer;
  metadata meta{set.meta.source()};
  for (auto const& [key, value] : set.meta) {
    if (key != "general.file_type") { meta.set(key, value); }
  }
  if (auto const number = file_type_of(rules.experts.value_or(rules.dense))) {
    meta.set("general.file_type", *number);
  }
  writer.set_all(meta);
  summary written;
  for (std::size_t file = 0; file < set.files.size(); ++file) {
    for (auto const& tensor : set.headers[file].tensors) {
      auto const chosen = rules.type_of(tensor);
      quant_type const type = chosen.value_or(tensor.type);
      if (chosen && type != rules.wanted_for(tensor.name)) {
        written.fell_back.push_back(tensor.name);
      }
      summary::group& group = written.by_type[type];
      ++group.tensors;
      std::uint64_t const cols = tensor.dims.empty() ? 1 : tensor.dims[0];
      group.bytes += tensor.bytes / row_bytes(tensor.type, cols) * row_bytes(type, cols);
      writer.add_tensor(
          tensor.name, type, tensor.dims, [&set, &tensor, file, type](auto const& sink) {
            format::file_source const source{set.files[file]};
            if (type == tensor.type) {
              detail::copy(source, tensor, sink);
            } else {
              detail::convert(source, tensor, type, sink);
            }
          });
    }
  }
  writer.write(to);
  return written;
}

}  // namespace terrace::quantize
