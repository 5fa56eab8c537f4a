// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "options.hpp"
#include "tiers.hpp"

#include <cstdint>

namespace terrace::runner {

/// Main memory that tiers may use: what is free, less a reserve for the program itself.
[[nodiscard]] std::uint64_t usable_memory_bytes();

/// Bytes of a tier's memory as the options ask for it: all that is free without a word about it,
/// and of persistent memory the whole file or device.
/// Errors: contract_error for a device that is not there, and for a file without a size.
[[nodiscard]] std::uint64_t capacity_of(tier_entry const& tier,
                                        chain_options const& wanted,
                                        int device);

/// Bytes that a block of `bytes` counts for in the tiers of every chain.
[[nodiscard]] std::uint64_t counted_bytes(std::uint64_t bytes);

}  // namespace terrace::runner
