// SPDX-License-Identifier: Apache-2.0
// Any bytes as a safetensors file: the parser and the block builder answer with blocks inside the
// file or with a terrace::error.
#include "fuzz/check_blocks.hpp"

#include <terrace/core/error.hpp>
#include <terrace/format/byte_source.hpp>
#include <terrace/format/detail/block_list.hpp>
#include <terrace/format/detail/safetensors_blocks.hpp>
#include <terrace/format/safetensors.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
  using namespace terrace::format;
  try {
    memory_source const source{"input.safetensors", std::as_bytes(std::span{data, size})};
    std::vector<std::filesystem::path> const paths{"input.safetensors"};
    std::vector<safetensors_file> const files{read_safetensors(source)};
    detail::block_list blocks;
    detail::safetensors_block_builder{paths, files, blocks}.build();
    fuzz::check_blocks(blocks, size);
  } catch (terrace::error const&) {  // the only answer a damaged file may get
  }
  return 0;
}
