// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace terrace::runner {

/// How many CUDA devices there are; 0 in a build without CUDA.
[[nodiscard]] int cuda_devices() noexcept;

/// Memory of a device that tiers and kernels may use: what is free, less a reserve for the driver.
/// Errors: contract_error for a device that is not there.
[[nodiscard]] std::uint64_t usable_device_bytes(int device);

/// Whether kernels of the device read memory that the system has mapped, the page cache with it.
/// Errors: contract_error for a device that is not there.
[[nodiscard]] bool reads_pageable_memory(int device);

}  // namespace terrace::runner
