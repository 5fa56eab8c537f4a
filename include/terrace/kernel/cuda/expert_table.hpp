// SPDX-License-Identifier: Apache-2.0
#pragma once

#if defined(TERRACE_HAS_CUDA)

#include <terrace/core/block.hpp>
#include <terrace/kernel/cuda/buffer.hpp>
#include <terrace/kernel/cuda/expert_ffn.hpp>
#include <terrace/kernel/cuda/upload_ring.hpp>

#include <cstddef>
#include <vector>

namespace terrace::kernel::cuda {

/// Where the experts of one layer may be read: kept on the host, sent to the device as a whole.
class expert_table {
 public:
  /// All of `experts` experts absent.
  void assign(std::size_t experts) { here_.assign(experts, {}); }
  [[nodiscard]] std::size_t size() const noexcept { return here_.size(); }

  void set(std::size_t expert, block_info const& block, std::byte const* address) {
    auto& entry = here_[expert];
    entry.block = address;
    for (std::size_t i = 0; i < 3; ++i) { entry.multiplier[i] = block.matrices[i].multiplier; }
  }
  void clear(std::size_t expert) noexcept { here_[expert] = {}; }

  /// `ring` is null while measuring.
  void send(memory_account& account, upload_ring* ring) {
    there_.reserve(account, here_.size());
    if (ring == nullptr) { return; }
    ring->send(here_.data(), here_.size() * sizeof(expert_entry), there_.data());
  }
  /// What was sent last.
  [[nodiscard]] expert_entry const* there() const noexcept { return there_.data(); }

 private:
  std::vector<expert_entry> here_;
  buffer<expert_entry> there_;
};

}  // namespace terrace::kernel::cuda

#endif
