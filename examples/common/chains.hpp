// SPDX-License-Identifier: Apache-2.0
#pragma once

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

/// A chain the runners were built with.
struct chain_entry {
  std::string_view name;
  bool has_dram = false;
  bool has_pmem = false;
  std::string_view description;

  [[nodiscard]] std::string_view fastest() const noexcept { return has_dram ? "dram" : "pmem"; }
  /// Names of the tiers, fast to home; the index of a name is its level.
  [[nodiscard]] std::vector<std::string_view> tiers() const;
};

inline constexpr std::array<chain_entry, 4> chain_table{{
    {"dram-nvme", true, false, "main memory over the model file"},
    {"dram-pmem-nvme",
     true,
     true,
     "main memory over persistent memory over the model file; what "
     "leaves main memory is still in persistent memory"},
    {"dram-pmem-nvme-exclusive",
     true,
     true,
     "the same, each block in one of the two memories: what "
     "leaves main memory moves to persistent memory"},
    {"pmem-nvme", false, true, "persistent memory, read in place, over the model file"},
}};

/// Errors: contract_error for a name that is not in the table.
[[nodiscard]] chain_entry const& find_chain(std::string_view name);

/// Sizes, policies and placements of a chain that is about to be made.
struct chain_setup {
  chain_entry const* chain = nullptr;
  std::uint64_t dram_bytes = 0;  ///< for blocks and sequence state; staging is beside it
  std::filesystem::path pmem_path;
  std::uint64_t pmem_bytes = 0;
  std::size_t expert_slots = unlimited;  ///< of the fastest level
  std::string evict;
  std::string prefetch;
  std::vector<block_placement> placements;
  nvme::options home;
};

/// The one place where chains are instantiated. The catalog must outlive the store.
/// Errors: what the tiers' constructors throw.
[[nodiscard]] std::unique_ptr<any_store> make_store(chain_setup const& setup,
                                                    format::catalog const& catalog);

}  // namespace terrace::runner
