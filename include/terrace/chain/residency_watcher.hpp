// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/block.hpp>
#include <terrace/core/ids.hpp>

#include <cstddef>

namespace terrace {

/// Told where blocks may be read, as they come and go: what keeps a copy of the residency table
/// elsewhere, in device memory say.
class residency_watcher {
 public:
  virtual ~residency_watcher() = default;

  /// The bytes of a block are at `address`, in the level it is read from.
  virtual void arrived(block_info const& block, std::byte const* address) = 0;
  /// The block is about to lose its memory. No lease on it lives.
  virtual void leaving(block_id id) noexcept = 0;

 protected:
  residency_watcher() = default;
  residency_watcher(residency_watcher const&) = default;
  residency_watcher& operator=(residency_watcher const&) = default;
};

}  // namespace terrace
