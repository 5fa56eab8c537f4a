// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>

namespace terrace::runner {

/// Bytes of main memory that may still be used: what the kernel calls available, and no more than
/// any control group (version 1 or 2) around this process leaves, file cache that can be dropped
/// counted as free. `root` is where /proc and /sys are, so that tests can lay out a machine of
/// their own.
/// Errors: io_error when the machine says nothing about its memory.
[[nodiscard]] std::uint64_t free_memory_bytes(std::filesystem::path const& root = "/");

/// Processors this process may use: its affinity, and the quota of the control groups around it,
/// rounded up.
[[nodiscard]] int usable_processors(std::filesystem::path const& root = "/");

/// Bytes of a file or of a character device such as /dev/dax0.0; 0 when there is none.
[[nodiscard]] std::uint64_t stored_bytes(std::filesystem::path const& path);

}  // namespace terrace::runner
