// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace terrace::runner {

/// The whole of a runner: `program` is "terrace-llama", "terrace-minimax" or "terrace-kimi" and
/// decides which models it takes. Never throws; a failure is one sentence on standard error.
/// Returns 0 done, 1 failed, 2 usage.
[[nodiscard]] int run(std::string_view program, int argc, char const* const* argv) noexcept;

}  // namespace terrace::runner
