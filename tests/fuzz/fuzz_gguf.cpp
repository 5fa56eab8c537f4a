// SPDX-License-Identifier: Apache-2.0
// Any bytes as a GGUF file: the parser and the block builder answer with blocks inside the file or
// with a terrace::error.
#include "fuzz/check_blocks.hpp"

#include <terrace/core/error.hpp>
#include <terrace/format/byte_source.hpp>
#include <terrace/format/detail/block_list.hpp>
#include <terrace/format/detail/gguf_blocks.hpp>
#include <terrace/format/gguf.hpp>
#include <terrace/format/gguf_set.hpp>

#include <cstddef>
#include <cstdint>
#include <span>

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
  using namespace terrace::format;
  try {
    memory_source const source{"input.gguf", std::as_bytes(std::span{data, size})};
    gguf_set set;
    set.files = {"input.gguf"};
    set.headers.push_back(read_gguf(source));
    detail::block_list blocks;
    detail::gguf_block_builder{set, blocks}.build();
    fuzz::check_blocks(blocks, size);
  } catch (terrace::error const&) {  // the only answer a damaged file may get
  }
  return 0;
}
