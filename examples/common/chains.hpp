// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <terrace/core/error.hpp>

#include <array>
#include <string>
#include <string_view>

namespace terrace::runner {

/// A chain the runners were built with.
struct chain_entry {
  std::string_view name;
  bool has_dram = false;
  bool has_pmem = false;
  std::string_view description;
};

inline constexpr std::array<chain_entry, 4> chain_table{{
    {"dram-nvme", true, false, "main memory over the model file"},
    {"dram-pmem-nvme",
     true,
     true,
     "main memory over persistent memory over the model file; what leaves main memory "
     "is still in persistent memory"},
    {"dram-pmem-nvme-exclusive",
     true,
     true,
     "the same, each block in one of the two memories: what leaves main "
     "memory is moved to persistent memory"},
    {"pmem-nvme", false, true, "persistent memory, read in place, over the model file"},
}};

/// Errors: contract_error for a name that is not in the table.
[[nodiscard]] inline chain_entry const& find_chain(std::string_view name) {
  for (auto const& entry : chain_table) {
    if (entry.name == name) { return entry; }
  }
  throw contract_error{"there is no chain named `" + std::string{name} +
                       "`; --list-chains lists them"};
}

}  // namespace terrace::runner
