// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/concepts/copy_path.hpp>
#include <terrace/core/extent.hpp>
#include <terrace/core/ticket.hpp>
#include <terrace/tier/dram.hpp>
#include <terrace/tier/nvme.hpp>

#include <span>
#include <vector>

namespace terrace {

/// Model file to main memory: direct I/O into the block itself, with bounced edges.
template <>
struct copy_path<nvme, dram> {
  /// Reads the extents of one block to their places in it. Errors as `nvme::read`.
  static ticket start(nvme& home, std::span<block_extent const> from, dram& to, dram::handle at) {
    std::vector<file_read> work;
    work.reserve(from.size());
    for (auto const& part : from) { work.push_back({part.from, to.address(at) + part.to_offset}); }
    return home.read(work);
  }
};

static_assert(copyable_to<nvme, dram>);

}  // namespace terrace
