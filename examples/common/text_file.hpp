// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>

namespace terrace::runner {

/// The whole content of a file; "-" is standard input.
/// Errors: io_error naming the file when it cannot be read or is larger than 1 GiB.
[[nodiscard]] std::string read_text_file(std::filesystem::path const& path);

}  // namespace terrace::runner
