// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/format/byte_source.hpp>
#include <terrace/format/catalog.hpp>
#include <terrace/quant/decode.hpp>

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

namespace terrace::model {

/// A small dense tensor as float32, read from its file at once and past any store: for constants a
/// model needs before there is a store, such as rotation divisors. Errors: format_error if it is
/// missing, io_error.
[[nodiscard]] inline std::vector<float> read_tensor(format::catalog const& catalog,
                                                    std::string_view name) {
  auto const& place = catalog.get(name);
  block_info const& info = *catalog.find_block(place.block);
  std::vector<std::byte> bytes(info.bytes);
  for (auto const& piece : info.extents) {
    format::file_source const file{catalog.files()[static_cast<std::size_t>(piece.from.file)]};
    file.read(piece.from.offset, std::span{bytes}.subspan(piece.to_offset, piece.from.bytes));
  }
  auto const matrix = view_at(place.layout, bytes.data());
  std::vector<float> values(matrix.rows * matrix.cols);
  quant::decode_rows(matrix, 0, matrix.rows, values);
  return values;
}

}  // namespace terrace::model
