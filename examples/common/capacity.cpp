// SPDX-License-Identifier: Apache-2.0
#include "capacity.hpp"

#include "devices.hpp"
#include "machine.hpp"

#include <terrace/core/error.hpp>
#include <terrace/core/units.hpp>
#include <terrace/tier/dram.hpp>
#include <terrace/tier/pinned.hpp>
#include <terrace/tier/pmem.hpp>
#include <terrace/tier/unified.hpp>
#include <terrace/tier/vram.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

namespace terrace::runner {
namespace {

/// What --pmem gives: a size, a share of what the file system and the file itself offer, or the
/// whole file or device.
std::uint64_t pmem_bytes(sized_path const& where) {
  std::uint64_t const existing = stored_bytes(where.path);
  constexpr std::uint64_t header = 4096;  // the tier marks its file in the first page
  if (!where.size) {
    if (existing > header) { return existing - header; }
    throw contract_error{fmt::format(
        "--pmem {}: there is no such file yet, so its size must be given, as in {}:1GiB",
        where.path.string(),
        where.path.string())};
  }
  if (!where.size->is_share()) { return where.size->bytes(0); }
  auto const folder =
      where.path.has_parent_path() ? where.path.parent_path() : std::filesystem::path{"."};
  std::error_code failed;
  auto const space = std::filesystem::space(folder, failed);
  std::uint64_t const room = failed ? 0 : space.available;
  return where.size->bytes(existing + room - std::min(existing + room, header));
}

}  // namespace

std::uint64_t usable_memory_bytes() {
  std::uint64_t const free = free_memory_bytes();
  return free - std::min(free / 8, 256 * mib);
}

std::uint64_t capacity_of(tier_entry const& tier, chain_options const& wanted, int device) {
  if (tier.memory == tier_memory::persistent) { return pmem_bytes(*wanted.pmem); }
  auto const asked = wanted.cap_of(tier.name);
  auto const free =
      tier.memory == tier_memory::device ? usable_device_bytes(device) : usable_memory_bytes();
  return asked.value_or(size_request::all()).bytes(free);
}

std::uint64_t counted_bytes(std::uint64_t bytes) {
#if defined(TERRACE_HAS_PMEM2)
  static_assert(dram::traits.granularity == pmem::traits.granularity);
#endif
#if defined(TERRACE_HAS_CUDA)
  static_assert(dram::traits.granularity == vram::traits.granularity);
  static_assert(dram::traits.granularity == pinned::traits.granularity);
  static_assert(dram::traits.granularity == unified::traits.granularity);
#endif
  return round_up(std::max<std::uint64_t>(bytes, 1), dram::traits.granularity);
}

}  // namespace terrace::runner
