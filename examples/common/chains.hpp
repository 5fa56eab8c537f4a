// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tiers.hpp"

#include <terrace/chain/any_store.hpp>
#include <terrace/chain/store.hpp>
#include <terrace/core/error.hpp>
#include <terrace/format/catalog.hpp>
#include <terrace/tier/nvme.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace terrace::runner {

/// A chain the runners know. Its name lists its tiers, fast to home.
struct chain_entry {
  std::string_view name;
  std::string_view description;

  /// The index of a tier is its level.
  [[nodiscard]] std::vector<tier_entry const*> tiers() const;
  [[nodiscard]] tier_entry const& fastest() const { return *tiers().front(); }
  [[nodiscard]] bool has(std::string_view tier) const;
  /// Whether one of its tiers belongs to a device.
  [[nodiscard]] bool needs_cuda() const;
  /// What this build lacks for it, as "CUDA"; empty: nothing.
  [[nodiscard]] std::string_view lacks() const;
};

inline constexpr std::array<chain_entry, 11> chain_table{{
    {"dram-nvme", "main memory over the model file"},
    {"dram-pmem-nvme",
     "main memory over persistent memory over the model file; what leaves main memory is still in "
     "persistent memory"},
    {"dram-pmem-nvme-exclusive",
     "the same, each block in one of the two memories: what leaves main memory moves to persistent "
     "memory"},
    {"pmem-nvme", "persistent memory, read in place, over the model file"},
    {"vram-nvme", "a device's memory over the model file"},
    {"vram-dram-nvme", "a device's memory over main memory over the model file"},
    {"vram-pinned-nvme",
     "the same with main memory that the device reads too: blocks placed there are read in place"},
    {"vram-pmem-nvme", "a device's memory over persistent memory over the model file"},
    {"pinned-nvme", "main memory that the device reads in place, over the model file"},
    {"unified-nvme", "managed memory, kept on the device, over the model file"},
    {"unified-pinned-nvme",
     "managed memory, kept on the device, over main memory that the device reads too"},
}};

/// Errors: contract_error for a name that is not in the table.
[[nodiscard]] chain_entry const& find_chain(std::string_view name);

/// Sizes, policies and placements of a chain that is about to be made.
struct chain_setup {
  chain_entry const* chain = nullptr;
  /// For blocks and sequence state, per level from fast to slow; staging and what kernels work with
  /// are beside it.
  std::vector<std::uint64_t> level_bytes;
  std::filesystem::path pmem_path;
  int device = 0;                        ///< of the tiers that belong to one
  std::size_t expert_slots = unlimited;  ///< of the fastest level
  std::string evict;
  std::string prefetch;
  std::vector<block_placement> placements;
  nvme::options home;
  device_staging staging;
};

/// The one place where chains are instantiated. The catalog must outlive the store.
/// Errors: what the tiers' constructors throw; not_supported for a chain that this build lacks.
[[nodiscard]] std::unique_ptr<any_store> make_store(chain_setup const& setup,
                                                    format::catalog const& catalog);

}  // namespace terrace::runner
